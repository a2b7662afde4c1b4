"""The packet policy as nftables text (pure): a guest reaches the public internet and the guest
gateway of its node, and nothing else.

One table per node, `inet <prefix>`; our interfaces are recognised by their device group. Loading
the text again replaces the rules and keeps the forwarded ports, in one transaction.
"""
import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass

from config import guest_gateway
from guest.agent.protocol import AGENT_PORT
from guest.agentserver.addresses import SPECIAL_V4
from nodeworker.network.addresses import GUEST_ADDRESS, TAP_NAME, UPLINK_NAME, Slot, device_group

# Everything that is not the public internet; a guest reaches none of it.
BLOCKED_NETWORKS = tuple(map(str, SPECIAL_V4))
FORWARDS_MAP = "forwards"
# Slot addresses whose guest sleeps in a process that is kept, unless they are in the second set as
# well: to take an element out costs 10 ms more than to add one, and a wake has none to spare.
ASLEEP_SET, AWAKE_SET = "asleep", "awake"
# Connections of one guest at a time, as the kernel tracks them: those it opens, those to its ports,
# those to its agent, those it opens to the guest gateway.
OUTGOING_MOST, INCOMING_MOST, AGENT_MOST, GATEWAY_MOST = 4096, 1024, 256, 512
# What these leave out: a connection that is closed, or that nobody answers, is in the host's table
# for two minutes more. So a guest opens this many a second, and this many at once after a rest.
OPENED_PER_S, OPENED_AT_ONCE = 100, 4096
_TO_GATEWAY = f"ip daddr {guest_gateway.ADDRESS} tcp dport {guest_gateway.PORT}"
_CHAINS = ("antispoof", "closed", "prerouting", "dead_slots", "output", "postrouting", "from_guest",
           "to_guest", "forward", "input")


@dataclass(frozen=True)
class NodePorts:
    """The ports that a node offers at `address`: `tenants` (low, high) to everybody, or to this
    host and `edge_sources`, addresses or networks, if there are any; `agents` to this host and
    `agent_sources`. `gateway` is the port on 127.0.0.1 that guests are led to; 0: to none."""

    address: str
    tenants: tuple[int, int]
    agents: tuple[int, int]
    agent_sources: tuple[str, ...] = ()
    edge_sources: tuple[str, ...] = ()
    gateway: int = 0


def node_ruleset(prefix: str, slot_network: str, offered: NodePorts) -> str:
    """nft commands for the host: NAT, forwarded ports and what may pass from and to guests."""
    group = device_group(prefix)
    table = f"inet {prefix}"
    own = ", ".join(sorted({"127.0.0.1", offered.address}))
    agents = f"{offered.agents[0]}-{offered.agents[1]}"
    tenants = f"{offered.tenants[0]}-{offered.tenants[1]}"
    ports = f"{{ {tenants}, {agents} }}"
    closed = (f"add rule {table} closed ct direction original iifname != lo ip daddr {{ {own} }}"
              " tcp dport")
    dnat = f"dnat ip to tcp dport map @{FORWARDS_MAP}"
    lines = [
        *_chains(table),
        f"add rule {table} antispoof iifgroup {group} meta nfproto ipv6 drop",
        f"add rule {table} antispoof iifgroup {group} fib saddr . iif oif missing drop",
        f"{closed} {agents} {_from_others(offered.agent_sources)}drop",
        *([f"{closed} {tenants} {_from_others(offered.edge_sources)}drop"]
          if offered.edge_sources else []),
        (
            f"add rule {table} prerouting iifgroup != {group} ip daddr {{ {own} }} tcp dport"
            f" {ports} {dnat}"
        ),
        (
            f"add rule {table} dead_slots iifgroup != {group} ip daddr {slot_network} meta l4proto"
            " tcp fib daddr oif missing reject with tcp reset"
        ),
        # Answers to connections that the guest itself has opened wait for its wake.
        (
            f"add rule {table} dead_slots iifgroup != {group} ct direction original ip daddr"
            f" @{ASLEEP_SET} ip daddr != @{AWAKE_SET} meta l4proto tcp reject with tcp reset"
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
        *(_gateway(table, group, offered.gateway) if offered.gateway else ()),
        f"add rule {table} input iifgroup {group} drop",
    ]
    return "\n".join(lines) + "\n"


def _gateway(table: str, group: int, port: int) -> list[str]:
    """The one opening of the host: the constant address leads to the node's own process, which
    listens on loopback, so that nobody else's packets get there; the source stays the slot's."""
    return [
        f"add rule {table} prerouting iifgroup {group} {_TO_GATEWAY} dnat ip to 127.0.0.1:{port}",
        (
            f"add rule {table} input iifgroup {group} ct status dnat ct original ip daddr"
            f" {guest_gateway.ADDRESS} ip daddr 127.0.0.1 tcp dport {port} accept"
        ),
    ]


def _chains(table: str) -> list[str]:
    """The table with its map, its sets and its chains; all are empty after it but the map, which is
    left as it is."""
    return [
        f"add table {table}",
        f"add map {table} {FORWARDS_MAP} {{ type inet_service : ipv4_addr . inet_service; }}",
        *(f"add set {table} {name} {{ type ipv4_addr; }}" for name in (ASLEEP_SET, AWAKE_SET)),
        *(f"flush set {table} {name}" for name in (ASLEEP_SET, AWAKE_SET)),
        f"add chain {table} antispoof {{ type filter hook prerouting priority raw; }}",
        # Once the kernel knows which connection a packet is of: answers to a guest's own may come
        # to any port, since its packets leave with the node's address.
        f"add chain {table} closed {{ type filter hook prerouting priority -150; }}",
        f"add chain {table} prerouting {{ type nat hook prerouting priority dstnat; }}",
        # After ports are translated. What goes to a slot that is gone, or whose guest is asleep,
        # such as a connection kept to a sandbox that sleeps now, is answered by a reset, and not
        # lost in silence.
        f"add chain {table} dead_slots {{ type filter hook prerouting priority -90; }}",
        f"add chain {table} output {{ type nat hook output priority -100; }}",
        f"add chain {table} postrouting {{ type nat hook postrouting priority srcnat; }}",
        f"add chain {table} forward {{ type filter hook forward priority filter; }}",
        f"add chain {table} input {{ type filter hook input priority filter; }}",
        f"add chain {table} from_guest",
        f"add chain {table} to_guest",
        *(f"flush chain {table} {chain}" for chain in _CHAINS),
    ]


def _from_others(sources: tuple[str, ...]) -> str:
    """Matches everybody but the sources."""
    return f"ip saddr != {{ {', '.join(sources)} }} " if sources else ""


def slot_ruleset(slot: Slot, host_addresses: Iterable[str] = ()) -> str:
    """nft commands inside a slot's namespace: one-to-one NAT, no IPv6, no forged sources, nothing
    for the namespace itself.

    The host's policy once more, should somebody flush the host's: the guest opens no connection to
    what is not the public internet, nor to `host_addresses`, but to the guest gateway. And how many
    connections there may be, so that nobody fills the host's table of them: of the guest's own, to
    its ports, to its agent, to the guest gateway; and how fast it opens its own.
    """
    table = "inet slot"
    closed = ", ".join((*BLOCKED_NETWORKS, *_public(host_addresses)))
    outwards = f"add rule {table} forward iifname {TAP_NAME} oifname {UPLINK_NAME}"
    inwards = f"add rule {table} forward iifname {UPLINK_NAME} oifname {TAP_NAME}"
    lines = [
        *_slot_chains(table),
        (
            f"add rule {table} prerouting iifname {UPLINK_NAME} ip daddr {slot.address} dnat ip to"
            f" {GUEST_ADDRESS}"
        ),
        (
            f"add rule {table} postrouting oifname {UPLINK_NAME} ip saddr {GUEST_ADDRESS} snat ip"
            f" to {slot.address}"
        ),
        f"add rule {table} forward meta nfproto ipv6 drop",
        f"{outwards} ip saddr != {GUEST_ADDRESS} drop",
        f"{inwards} ip daddr != {GUEST_ADDRESS} drop",
        f"add rule {table} forward ct state established,related accept",
        # Of each connection the first packet alone: all that nobody answers are "new".
        f"{outwards} ct state new ct status and confirmed == 0 limit rate over"
        f" {OPENED_PER_S}/second burst {OPENED_AT_ONCE} packets drop",
        f"{outwards} {_TO_GATEWAY} ct state new ct count over {GATEWAY_MOST}"
        " reject with tcp reset",
        f"{outwards} {_TO_GATEWAY} accept",
        f"{outwards} ip daddr {{ {closed} }} drop",
        f"{outwards} ct state new ct count over {OUTGOING_MOST} drop",
        f"{outwards} accept",
        f"{inwards} tcp dport {AGENT_PORT} ct state new ct count over {AGENT_MOST}"
        " reject with tcp reset",
        f"{inwards} tcp dport != {AGENT_PORT} ct state new ct count over {INCOMING_MOST}"
        " reject with tcp reset",
        f"{inwards} accept",
        # What the kernel answers to others' packets: the resets from above, and errors by ICMP.
        f"add rule {table} output ct state established,related accept",
    ]
    return "\n".join(lines) + "\n"


def _slot_chains(table: str) -> list[str]:
    """A slot's table with its chains, which are empty after it: what an earlier version has loaded
    is replaced."""
    return [
        f"add table {table}",
        f"add chain {table} prerouting {{ type nat hook prerouting priority dstnat; }}",
        f"add chain {table} postrouting {{ type nat hook postrouting priority srcnat; }}",
        *(f"add chain {table} {name} {{ type filter hook {name} priority filter; policy drop; }}"
          for name in ("forward", "input", "output")),
        f"flush table {table}",
    ]


def _public(host_addresses: Iterable[str]) -> list[str]:
    """Those that are in none of the blocked networks: nftables takes no overlapping elements."""
    found = {ipaddress.IPv4Address(each) for each in host_addresses}
    return [str(each) for each in sorted(found)
            if not any(each in network for network in SPECIAL_V4)]


def add_forwards(prefix: str, address: str, ports: Iterable[tuple[int, int]]) -> str:
    """nft commands that forward (host port, guest port) pairs to `address`, which is awake then.
    They only add."""
    elements = ", ".join(f"{host} : {address} . {guest}" for host, guest in ports)
    return (f"add element inet {prefix} {FORWARDS_MAP} {{ {elements} }}\n"
            f"add element inet {prefix} {AWAKE_SET} {{ {address} }}\n")


def delete_forwards(prefix: str, host_ports: Iterable[int]) -> str:
    """nft command that ends the forwarding of `host_ports`."""
    elements = ", ".join(str(port) for port in sorted(host_ports))
    return f"delete element inet {prefix} {FORWARDS_MAP} {{ {elements} }}\n"


def put_to_sleep(prefix: str, address: str) -> str:
    """nft commands after which connections of others to `address` are reset, until something is
    forwarded to it."""
    return (_take_out(prefix, AWAKE_SET, address)
            + f"add element inet {prefix} {ASLEEP_SET} {{ {address} }}\n")


def forget_sleep(prefix: str, address: str) -> str:
    """nft commands after which nothing is known of `address`."""
    return _take_out(prefix, AWAKE_SET, address) + _take_out(prefix, ASLEEP_SET, address)


def _take_out(prefix: str, name: str, address: str) -> str:
    """Also if it is not there: nft deletes what is there only, and adds what is without a word."""
    element = f"element inet {prefix} {name} {{ {address} }}\n"
    return f"add {element}delete {element}"
