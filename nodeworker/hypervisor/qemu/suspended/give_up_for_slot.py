"""Which machine that nobody uses is given up when another one is to start and no network slot is
free: first what is made again soonest, last what makes the next wake of somebody's sandbox quick.
"""
from nodeworker.hypervisor.qemu.host import Host
from nodeworker.hypervisor.qemu.process import prepared_processes
from nodeworker.hypervisor.qemu.suspended import kept_machines, warm_spares


def give_up_for_slot(host: Host) -> bool:
    """Give up one: a process without a machine, else a spare, else the machine of a sandbox that
    sleeps. False if there is none of them."""
    return (prepared_processes.end_eldest(host) or warm_spares.end_one(host)
            or kept_machines.end_eldest(host))
