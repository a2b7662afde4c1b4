"""Build and remove the interfaces of one slot through netlink.

1. A namespace, with a persistent tap (the guest's cable) and one end of a veth pair inside. 2.
Fixed MACs and permanent neighbour entries on all ends: no ARP round trip in front of a guest's
first packet. 3. NAT and packet rules inside; a route to the slot address outside.
"""
import errno
import os
import socket
from pathlib import Path

from pyroute2 import IPRoute, NetlinkError

from nodeworker.network import addresses, namespaces, nft, ruleset
from nodeworker.network.addresses import Slot

_NUD_PERMANENT = 0x80
# How long (s) the kernel counts a connection that nobody has answered; by default two minutes, in
# which those who wait for a booting guest would use up what its agent may have of them.
_UNANSWERED_S = 5


def build_slot(slot: Slot, group: int) -> None:
    """Make the slot ready for a VM; raises OSError or NftError and leaves it to `remove_slot` to
    clear what was made."""
    try:
        _build(slot, group)
    except NetlinkError as error:
        raise OSError(error.code, f"slot {slot.namespace} at {slot.address}: {error}") from error


def _build(slot: Slot, group: int) -> None:
    namespaces.create_namespace(slot.namespace)
    descriptor = os.open(namespaces.NETNS_DIR / slot.namespace, os.O_RDONLY)
    try:
        with IPRoute() as host:
            peer = {
                "ifname": addresses.UPLINK_NAME, "net_ns_fd": descriptor,
                "address": addresses.UPLINK_MAC
            }
            host.link("add", ifname=slot.host_interface, kind="veth", peer=peer,
                      address=addresses.HOST_MAC)
            own = _own_addresses(host)
            namespaces.in_namespace(slot.namespace, lambda: _inside(slot, own))
            _outside(host, slot, group)
    finally:
        os.close(descriptor)


def _own_addresses(host: IPRoute) -> list[str]:
    return [address.get("local", address.get("address")) for address in
            host.get_addr(family=socket.AF_INET)]


def _outside(host: IPRoute, slot: Slot, group: int) -> None:
    index = socket.if_nametoindex(slot.host_interface)
    _write_sysctl(f"ipv6/conf/{slot.host_interface}/disable_ipv6", "1", required=False)
    _write_sysctl(f"ipv4/conf/{slot.host_interface}/route_localnet", "1")
    host.link("set", index=index, group=group, state="up")
    host.addr("add", index=index, address=slot.host_address, prefixlen=32)
    host.neigh("replace", dst=slot.address, lladdr=addresses.UPLINK_MAC, ifindex=index,
               state=_NUD_PERMANENT)
    host.route("add", dst=f"{slot.address}/32", oif=index, scope=253, prefsrc=slot.host_address)


def _inside(slot: Slot, host_addresses: list[str]) -> None:
    _write_sysctl("ipv6/conf/all/disable_ipv6", "1", required=False)
    _write_sysctl("ipv4/ip_forward", "1")
    os.close(namespaces.open_tap(addresses.TAP_NAME, persist=True))
    with IPRoute() as inner:
        tap = socket.if_nametoindex(addresses.TAP_NAME)
        uplink = socket.if_nametoindex(addresses.UPLINK_NAME)
        inner.link("set", index=tap, address=addresses.GATEWAY_MAC, state="up")
        inner.addr("add", index=tap, address=addresses.GATEWAY_ADDRESS,
                   prefixlen=addresses.GUEST_PREFIX_BITS)
        inner.neigh("replace", dst=addresses.GUEST_ADDRESS, lladdr=addresses.GUEST_MAC, ifindex=tap,
                    state=_NUD_PERMANENT)
        inner.link("set", index=uplink, state="up")
        inner.addr("add", index=uplink, address=slot.address, prefixlen=32)
        inner.neigh("replace", dst=slot.host_address, lladdr=addresses.HOST_MAC, ifindex=uplink,
                    state=_NUD_PERMANENT)
        inner.route("add", dst=f"{slot.host_address}/32", oif=uplink, scope=253)
        inner.route("add", dst="0.0.0.0/0", gateway=slot.host_address, oif=uplink)
    nft.apply(ruleset.slot_ruleset(slot, host_addresses))
    _write_sysctl("netfilter/nf_conntrack_tcp_timeout_syn_sent", str(_UNANSWERED_S))


def _write_sysctl(name: str, value: str, *, required: bool = True) -> None:
    """/proc/sys/net shows the namespace of the calling thread."""
    path = Path("/proc/sys/net") / name
    if required or path.exists():
        path.write_text(value)


def renew_rules(slot: Slot) -> None:
    """Load the packet rules inside a slot again, as they are in one that is made now; connections
    stay. Raises OSError or NftError, and leaves the rules as they were."""
    with IPRoute() as host:
        own = _own_addresses(host)
    namespaces.in_namespace(
        slot.namespace, lambda: nft.apply(ruleset.slot_ruleset(slot, own)))


def let_through(slot: Slot, is_open: bool) -> None:
    """Whether what the guest in a slot sends to others is passed on, to the internet as to the
    guest gateway, or dropped without a word, as by a network that is slow."""
    for name in "forwarding", "route_localnet":
        _write_sysctl(f"ipv4/conf/{slot.host_interface}/{name}", str(int(is_open)))


def remove_slot(slot: Slot) -> None:
    """Delete the slot's namespace, and with it tap, veth pair, addresses and routes. Nothing there:
    no-op."""
    namespaces.delete_namespace(slot.namespace)


def refuse(network: str) -> None:
    """Have addresses of `network` that no slot has be unreachable, instead of following the host's
    default route. There already: no-op."""
    with IPRoute() as host:
        host.route("replace", dst=network, type="unreachable")


def remove_refusal(network: str) -> None:
    """Undo `refuse`. Nothing there: no-op."""
    with IPRoute() as host:
        try:
            host.route("del", dst=network, type="unreachable")
        except NetlinkError as error:
            if error.code != errno.ESRCH:
                raise


def list_host_interfaces(group: int) -> list[str]:
    """Names of the host-side interfaces of a device group."""
    with IPRoute() as host:
        return [str(link.get("ifname")) for link in host.get_links() if link.get("group") == group]


def delete_host_interface(name: str) -> None:
    """Delete one host-side interface; already gone: no-op."""
    with IPRoute() as host:
        for index in host.link_lookup(ifname=name):
            host.link("del", index=index)
