"""Which addresses a callback may go to: the public internet's, and nothing that is special in any
way.

Written out instead of asking `ipaddress` what is global: its answer differs between versions of
Python.
"""
import ipaddress

# Private, link-local (cloud metadata), carrier NAT, test nets, multicast: the packet policy of the
# hosts blocks the same ones.
SPECIAL_V4 = tuple(
    map(
        ipaddress.IPv4Network,
        (
            "0.0.0.0/8",
            "10.0.0.0/8",
            "100.64.0.0/10",
            "127.0.0.0/8",
            "169.254.0.0/16",
            "172.16.0.0/12",
            "192.0.0.0/24",
            "192.0.2.0/24",
            "192.88.99.0/24",
            "192.168.0.0/16",
            "198.18.0.0/15",
            "198.51.100.0/24",
            "203.0.113.0/24",
            "224.0.0.0/3",
        ),
    )
)
_UNICAST_V6 = ipaddress.IPv6Network("2000::/3")
# Teredo and other protocols, documentation, 6to4 (which carries an IPv4 address), documentation
# again.
_SPECIAL_V6 = tuple(
    map(ipaddress.IPv6Network, ("2001::/23", "2001:db8::/32", "2002::/16", "3fff::/20")))


def is_public(literal: str) -> bool:
    """True for the usual form of an address of the public internet; an IPv4 address in an IPv6 one
    counts as itself."""
    try:
        address = ipaddress.ip_address(literal)
    except ValueError:
        return False
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped is None:
            return address in _UNICAST_V6 and not any(address in network for network in _SPECIAL_V6)
        address = address.ipv4_mapped
    return not any(address in network for network in SPECIAL_V4)
