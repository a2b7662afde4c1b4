"""Addresses, names and the packet policy as text, without touching the host."""
import ipaddress

import pytest

from nodeworker.network import addresses, ruleset

NETWORK = "10.201.0.0/16"


def node_rules(address="127.0.0.1", sources=()):
    return ruleset.node_ruleset(
        "svc", NETWORK, ruleset.NodePorts(address, (20000, 29999), (30000, 32699), sources))


def test_every_slot_has_an_address_of_its_own_inside_the_network():
    slots = [addresses.slot("svc", NETWORK, number) for number in range(2000)]
    assert len({slot.address for slot in slots}) == 2000
    assert all(
        ipaddress.ip_address(slot.address) in ipaddress.ip_network(NETWORK) for slot in slots)
    assert {slot.host_address for slot in slots} == {"10.201.0.1"}
    assert "10.201.0.1" not in {slot.address for slot in slots}


@pytest.mark.parametrize(("network", "capacity"), [("10.0.0.0/16", 65519), ("10.0.0.0/24", 239),
                                                   ("10.0.0.0/27", 15)])
def test_the_last_slot_fits_and_the_next_does_not(network, capacity):
    assert addresses.slot_capacity(network) == capacity
    last = addresses.slot("svc", network, capacity - 1)
    assert ipaddress.ip_address(last.address) < ipaddress.ip_network(network).broadcast_address
    for number in (capacity, -1):
        with pytest.raises(ValueError, match="does not fit"):
            addresses.slot("svc", network, number)


def test_interface_names_fit_the_kernel():
    assert len(addresses.slot("svc", NETWORK, 65000).host_interface) <= 15


def test_prefixes_that_begin_alike_have_groups_of_their_own():
    groups = {
        addresses.device_group(prefix) for prefix in ("svc", "svct", "svc1", "svc11", "bench")
    }
    assert len(groups) == 5 and all(0 < group < 1 << 31 for group in groups)


@pytest.mark.parametrize("address", [
    "10.1.2.3",
    "172.16.0.1",
    "172.31.255.255",
    "192.168.0.1",
    "127.0.0.1",
    "169.254.169.254",
    "100.64.0.1",
    "0.0.0.0",
    "224.0.0.251",
    "255.255.255.255",
    "198.18.0.1",
    "192.0.2.1",
])
def test_addresses_that_are_not_the_public_internet_are_blocked(address):
    networks = [ipaddress.ip_network(network) for network in ruleset.BLOCKED_NETWORKS]
    assert any(ipaddress.ip_address(address) in network for network in networks)


@pytest.mark.parametrize(
    "address", ["1.1.1.1", "8.8.8.8", "93.184.216.34", "172.15.0.1", "172.32.0.1", "11.0.0.1"])
def test_public_addresses_are_not_blocked(address):
    networks = [ipaddress.ip_network(network) for network in ruleset.BLOCKED_NETWORKS]
    assert not any(ipaddress.ip_address(address) in network for network in networks)


def test_the_policy_of_a_node_drops_before_it_accepts():
    lines = node_rules().splitlines()
    group = addresses.device_group("svc")
    from_guest = [line for line in lines if line.startswith("add rule inet svc from_guest")]
    assert from_guest == [
        "add rule inet svc from_guest ct state established,related accept",
        f"add rule inet svc from_guest oifgroup {group} drop",
        f"add rule inet svc from_guest ip daddr {{ {', '.join(ruleset.BLOCKED_NETWORKS)} }} drop",
    ]
    assert lines.index(
        f"add rule inet svc input iifgroup {group} ct state established,related accept"
    ) + 1 == lines.index(f"add rule inet svc input iifgroup {group} drop")


def test_the_one_opening_of_the_host_is_the_guest_gateway_s():
    ports = ruleset.NodePorts("127.0.0.1", (20000, 29999), (30000, 32699), gateway=18084)
    opened = set(ruleset.node_ruleset("svc", NETWORK, ports).splitlines()) - set(
        node_rules().splitlines())
    group = addresses.device_group("svc")
    assert opened == {
        f"add rule inet svc prerouting iifgroup {group} ip daddr 169.254.42.1 tcp dport 8790 dnat"
        " ip to 127.0.0.1:18084",
        f"add rule inet svc input iifgroup {group} ct status dnat ct original ip daddr 169.254.42.1"
        " ip daddr 127.0.0.1 tcp dport 18084 accept",
    }


def test_loading_the_policy_again_keeps_the_forwarded_ports():
    text = node_rules()
    assert "flush table" not in text and "delete" not in text and "flush map" not in text
    flushed = {line.split()[-1] for line in text.splitlines() if line.startswith("flush chain")}
    made = {line.split()[4] for line in text.splitlines() if line.startswith("add chain")}
    assert flushed == made


def test_a_node_with_an_address_of_its_own_offers_its_ports_there_and_on_loopback():
    assert "ip daddr { 127.0.0.1, 203.0.113.9 } tcp dport { 20000-29999, 30000-32699 }" in \
        node_rules("203.0.113.9")
    assert "ip daddr { 127.0.0.1 } tcp dport" in node_rules()


@pytest.mark.parametrize(("sources", "strangers"), [
    ((), ""), (("203.0.113.1", "203.0.113.64/28"),
               "ip saddr != { 203.0.113.1, 203.0.113.64/28 } ")])
def test_the_agents_ports_are_for_the_hosts_that_are_named_only(sources, strangers):
    assert ("add rule inet svc closed ct direction original iifname != lo ip daddr { 127.0.0.1 }"
            f" tcp dport 30000-32699 {strangers}drop") in node_rules(sources=sources)


def test_forwards_are_added_and_deleted_in_one_transaction():
    assert ruleset.add_forwards("svc", "10.201.0.16", [(20000, 1024), (20001, 22)]) == (
        "add element inet svc forwards { 20000 : 10.201.0.16 . 1024, 20001 : 10.201.0.16 . 22 }\n"
        "add element inet svc awake { 10.201.0.16 }\n"), "to delete anything takes longer"
    assert ruleset.delete_forwards(
        "svc", [20001, 20000]) == "delete element inet svc forwards { 20000, 20001 }\n"


def test_inside_a_slot_only_the_guest_s_own_address_passes():
    slot = addresses.slot("svc", NETWORK, 3)
    lines = ruleset.slot_ruleset(slot, ["10.0.0.7", "9.9.9.1"]).splitlines()
    forward = [line.removeprefix("add rule inet slot forward ") for line in lines
               if line.startswith("add rule inet slot forward ")]
    closed = ", ".join((*ruleset.BLOCKED_NETWORKS, "9.9.9.1"))
    outwards = "iifname tap0 oifname up "
    gateway = f"{outwards}ip daddr 169.254.42.1 tcp dport 8790"
    assert forward[:9] == [
        "meta nfproto ipv6 drop", f"{outwards}ip saddr != 172.30.0.2 drop",
        "iifname up oifname tap0 ip daddr != 172.30.0.2 drop",
        "ct state established,related accept",
        f"{outwards}ct state new ct status and confirmed == 0 limit rate over"
        f" {ruleset.OPENED_PER_S}/second burst"
        f" {ruleset.OPENED_AT_ONCE} packets drop",
        f"{gateway} ct state new ct count over {ruleset.GATEWAY_MOST} reject with tcp reset",
        f"{gateway} accept", f"{outwards}ip daddr {{ {closed} }} drop",
        f"{outwards}ct state new ct count over {ruleset.OUTGOING_MOST} drop"
    ]
    assert (
        f"add rule inet slot postrouting oifname up ip saddr 172.30.0.2 snat ip to {slot.address}"
        in lines
    )
    assert sum("policy drop" in line for line in lines) == 3
    assert [line for line in lines if line.startswith("add rule inet slot output")] == [
        "add rule inet slot output ct state established,related accept"], "it opens nothing itself"
