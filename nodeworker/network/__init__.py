"""Network slots of virtual machines: namespaces, taps, NAT, the packet policy and forwarded host
ports."""
