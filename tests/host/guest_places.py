"""Guests without machines: the slots of a node as they are, with its packet policy, and in each, in
place of a QEMU, a namespace that has the guest's address."""
import contextlib
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from nodeworker.network import addresses, links, namespaces, nft, ruleset
from nodeworker.network.ruleset import NodePorts


class Place:
    """One slot of a node, and the guest in it."""

    def __init__(self, prefix, network, number):
        self.slot = addresses.slot(prefix, network, number)
        self.guest = f"{prefix}g{number}"

    @property
    def address(self):
        """What the host knows the guest by."""
        return self.slot.address

    def run(self, work):
        """What `work` gives inside the guest."""
        return namespaces.in_namespace(self.guest, work)

    def build(self, prefix):
        links.build_slot(self.slot, addresses.device_group(prefix))
        namespaces.create_namespace(self.guest)
        inside, outside, tap = self.guest, self.slot.namespace, addresses.TAP_NAME
        for line in (f"-n {outside} link del {tap}",
                     f"-n {outside} link add {tap} address {addresses.GATEWAY_MAC} type veth peer"
                     f" name eth0 netns {inside} address {addresses.GUEST_MAC}",
                     f"-n {outside} addr add {addresses.GATEWAY_ADDRESS}/30 dev {tap}",
                     f"-n {outside} link set {tap} up", f"-n {inside} link set lo up",
                     f"-n {inside} link set eth0 up",
                     f"-n {inside} addr add {addresses.GUEST_ADDRESS}/30 dev eth0",
                     f"-n {inside} route add default via {addresses.GATEWAY_ADDRESS}"):
            ip(line)

    def remove(self):
        for name in (self.guest, self.slot.namespace):
            namespaces.delete_namespace(name)


def addresses_asleep(prefix):
    """The slot addresses of a node of which connections of other hosts are reset."""
    asleep, awake = (
        set(nft.listing("set", "inet", prefix, name)[-1]["set"].get("elem", []))
        for name in (ruleset.ASLEEP_SET, ruleset.AWAKE_SET))
    return sorted(asleep - awake)


def ip(line):
    subprocess.run(["ip", *line.split()], check=True)


@contextmanager
def guest_places(prefix, network, gateway_port, count=1) -> Iterator[list[Place]]:
    """`count` guests of a node that leads them to `gateway_port`, in the block."""
    ports = NodePorts("127.0.0.1", (20000, 20009), (30000, 30009), gateway=gateway_port)
    with contextlib.ExitStack() as undo:
        undo.callback(nft.apply, f"add table inet {prefix}\ndelete table inet {prefix}\n")
        nft.apply(ruleset.node_ruleset(prefix, network, ports))
        found = [Place(prefix, network, number) for number in range(count)]
        for place in found:
            undo.callback(place.remove)
            place.remove()
            place.build(prefix)
        yield found
