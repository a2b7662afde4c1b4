"""The packet policy as nftables text (pure): a guest reaches the public internet and nothing else.

One table per node, `inet <prefix>`; our interfaces are recognised by their device group. Loading
the text again replaces the rules and keeps the forwarded ports, in one transaction.
"""
from collections.abc import Iterable

from guest.agentserver.addresses import SPECIAL_V4
from nodeworker.network.addresses import GUEST_ADDRESS, TAP_NAME, UPLINK_NAME, Slot, device_group

# Everything that is not the public internet; a guest reaches none of it.
BLOCKED_NETWORKS = tuple(map(str, SPECIAL_V4))
FORWARDS_MAP = "forwards"
_CHAINS = ("antispoof", "prerouting", "output", "postrouting", "from_guest", "to_guest", "forward",
           "input")


def node_ruleset(
    prefix: str, slot_network: str, node_address: str, host_ports: tuple[int, int]
) -> str:
    """nft commands for the host: NAT, forwarded ports and what may pass from and to guests."""
    group = device_group(prefix)
    table = f"inet {prefix}"
    own = ", ".join(sorted({"127.0.0.1", node_address}))
    ports = f"{host_ports[0]}-{host_ports[1]}"
    dnat = f"dnat ip to tcp dport map @{FORWARDS_MAP}"
    lines = [
        f"add table {table}",
        f"add map {table} {FORWARDS_MAP} {{ type inet_service : ipv4_addr . inet_service; }}",
        f"add chain {table} antispoof {{ type filter hook prerouting priority raw; }}",
        f"add chain {table} prerouting {{ type nat hook prerouting priority dstnat; }}",
        f"add chain {table} output {{ type nat hook output priority -100; }}",
        f"add chain {table} postrouting {{ type nat hook postrouting priority srcnat; }}",
        f"add chain {table} forward {{ type filter hook forward priority filter; }}",
        f"add chain {table} input {{ type filter hook input priority filter; }}",
        f"add chain {table} from_guest",
        f"add chain {table} to_guest",
        *(f"flush chain {table} {chain}" for chain in _CHAINS),
        f"add rule {table} antispoof iifgroup {group} meta nfproto ipv6 drop",
        f"add rule {table} antispoof iifgroup {group} fib saddr . iif oif missing drop",
        (
            f"add rule {table} prerouting iifgroup != {group} ip daddr {{ {own} }} tcp dport"
            f" {ports} {dnat}"
        ),
        f"add rule {table} output ip daddr {{ {own} }} tcp dport {ports} {dnat}",
        f"add rule {table} postrouting oifgroup {group} ip saddr 127.0.0.0/8 masquerade",
        f"add rule {table} postrouting oifgroup != {group} ip saddr {slot_network} masquerade",
        f"add rule {table} from_guest ct state established,related accept",
        f"add rule {table} from_guest oifgroup {group} drop",
        f"add rule {table} from_guest ip daddr {{ {', '.join(BLOCKED_NETWORKS)} }} drop",
        f"add rule {table} to_guest ct state established,related accept",
        f"add rule {table} to_guest ct status dnat accept",
        f"add rule {table} to_guest drop",
        f"add rule {table} forward iifgroup {group} jump from_guest",
        f"add rule {table} forward oifgroup {group} jump to_guest",
        f"add rule {table} input iifgroup {group} ct state established,related accept",
        f"add rule {table} input iifgroup {group} drop",
    ]
    return "\n".join(lines) + "\n"


def slot_ruleset(slot: Slot) -> str:
    """nft commands inside a slot's namespace: one-to-one NAT, no IPv6, no forged sources, nothing
    for the namespace itself."""
    table = "inet slot"
    lines = [
        f"add table {table}",
        f"add chain {table} prerouting {{ type nat hook prerouting priority dstnat; }}",
        f"add chain {table} postrouting {{ type nat hook postrouting priority srcnat; }}",
        f"add chain {table} forward {{ type filter hook forward priority filter; policy drop; }}",
        f"add chain {table} input {{ type filter hook input priority filter; policy drop; }}",
        (
            f"add rule {table} prerouting iifname {UPLINK_NAME} ip daddr {slot.address} dnat ip to"
            f" {GUEST_ADDRESS}"
        ),
        (
            f"add rule {table} postrouting oifname {UPLINK_NAME} ip saddr {GUEST_ADDRESS} snat ip"
            f" to {slot.address}"
        ),
        (
            f"add rule {table} forward iifname {TAP_NAME} oifname {UPLINK_NAME} ip saddr"
            f" {GUEST_ADDRESS} accept"
        ),
        (
            f"add rule {table} forward iifname {UPLINK_NAME} oifname {TAP_NAME} ip daddr"
            f" {GUEST_ADDRESS} accept"
        ),
    ]
    return "\n".join(lines) + "\n"


def add_forwards(prefix: str, address: str, ports: Iterable[tuple[int, int]]) -> str:
    """nft command that forwards (host port, guest port) pairs to `address`."""
    elements = ", ".join(f"{host} : {address} . {guest}" for host, guest in ports)
    return f"add element inet {prefix} {FORWARDS_MAP} {{ {elements} }}\n"


def delete_forwards(prefix: str, host_ports: Iterable[int]) -> str:
    """nft command that ends the forwarding of `host_ports`."""
    elements = ", ".join(str(port) for port in sorted(host_ports))
    return f"delete element inet {prefix} {FORWARDS_MAP} {{ {elements} }}\n"
