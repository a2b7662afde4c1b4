"""Names and addresses of a network slot, all functions of (prefix, slot network, number).

Every guest has the same MAC and address inside its own namespace, so a restored guest finds the
network it was saved with. Outside it is known by its slot address, which the namespace translates
one to one.
"""
import ipaddress
import zlib
from dataclasses import dataclass

GUEST_ADDRESS = "172.30.0.2"
GATEWAY_ADDRESS = "172.30.0.1"
GUEST_PREFIX_BITS = 30
GUEST_MAC = "52:54:00:1e:00:02"
GATEWAY_MAC = "52:54:00:1e:00:01"
UPLINK_MAC = "52:54:00:1e:01:02"
HOST_MAC = "52:54:00:1e:01:01"
TAP_NAME = "tap0"
UPLINK_NAME = "up"
_RESERVED_ADDRESSES = 16


@dataclass(frozen=True)
class Slot:
    """One place for one VM in the host's network; `address` is where the host reaches the guest."""

    number: int
    address: str
    host_address: str
    namespace: str
    host_interface: str


def slot(prefix: str, network: str, number: int) -> Slot:
    """The slot with this number; raises ValueError if the network is too small for it."""
    if not 0 <= number < slot_capacity(network):
        raise ValueError(f"slot {number} does not fit into {network}")
    first = ipaddress.IPv4Network(network).network_address
    return Slot(
        number=number,
        address=str(first + _RESERVED_ADDRESSES + number),
        host_address=str(first + 1),
        namespace=f"{prefix}-{number}",
        host_interface=f"{prefix}-{number}",
    )


def slot_capacity(network: str) -> int:
    """How many slots fit into `network` (the first addresses and the broadcast address are not
    used)."""
    return ipaddress.IPv4Network(network).num_addresses - _RESERVED_ADDRESSES - 1


def device_group(prefix: str) -> int:
    """Interface group of our host-side interfaces: rules match it, so that two prefixes never match
    each other's."""
    return zlib.crc32(prefix.encode()) & 0x7FFFFFFF | 0x100
