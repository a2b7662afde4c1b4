"""Removes the network and the cgroups of this node from the host, namespaces, interfaces, packet
policy and forwarding switch: `python -m nodeworker.commands.teardown`, as `make down` does and
tests do. VMs must have ended before.
"""
import shutil

from config.settings import Settings, get_settings
from nodeworker.hypervisor.qemu.process.cgroup import CgroupTree
from nodeworker.network import addresses, ip_forwarding, links, namespaces, nft


def teardown(settings: Settings) -> None:
    """After it nothing named or grouped by `settings.net_prefix` is left; repeating is a no-op."""
    prefix = settings.net_prefix
    directory = settings.node_dir / "net"
    for namespace in namespaces.list_namespaces(prefix):
        namespaces.delete_namespace(namespace)
    for interface in links.list_host_interfaces(addresses.device_group(prefix)):
        links.delete_host_interface(interface)
    CgroupTree(prefix).remove_all()
    if nft.listing("table", "inet", prefix):
        nft.apply(f"delete table inet {prefix}")
    links.remove_refusal(settings.slot_network)
    ip_forwarding.restore(directory / "forwarding-was-off", _others_forward)
    shutil.rmtree(directory, ignore_errors=True)


def _others_forward() -> bool:
    """True if any other nftables table of this host has a forward hook: another node, or a
    container engine. True also if that cannot be told."""
    try:
        chains = nft.listing("ruleset")
    except nft.NftError:
        return True
    return any(item.get("chain", {}).get("hook") == "forward" for item in chains)


if __name__ == "__main__":
    teardown(get_settings())
