"""The disks of QEMU's machines: chains of layers, who needs which, and what leaves the host."""
