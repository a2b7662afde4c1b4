"""Warm up a guest that was just booted, before its memory is kept as a warm image: it settles,
walks its hot path, and must measure time by a clock that every clone of it can trust.
"""
from collections.abc import Callable

from guest.client.agent_client import AgentClient
from guest.client.errors import AgentError
from nodeworker.hypervisor.qemu.guest.adoption import BadBoot, agent_of
from nodeworker.hypervisor.qemu.vm import Vm

# Good clocks; a guest that fell back to another would drift, and every clone of it.
_CLOCK_SOURCES = {"tsc", "kvm-clock"}
_CLOCK_FILE = "/sys/devices/system/clocksource/clocksource0/current_clocksource"
_WARM_UP_ROUNDS = 5
_PREPARE_LIMIT_S = 180.0


def warm_up(vm: Vm, limit_s: float, *, answered: Callable[[AgentClient], None]) -> None:
    """Wait for a freshly booted guest, let it settle, and walk its hot path a few times. Raises
    BadBoot.

    `answered` is called when it has given its first answer; what it does there comes before the
    guest's memory is tidied up.
    """
    agent = agent_of(vm, vm.host.image_for(vm.machine).agent_token)
    try:
        agent.wait_ready(limit_s)
        answered(agent)
        source = agent.exec(["cat", _CLOCK_FILE], cwd="/").stdout.decode().strip()
        agent.prepare(_PREPARE_LIMIT_S)
        for _ in range(_WARM_UP_ROUNDS):
            agent.exec(["/bin/true"], cwd="/")
            agent.ping()
    except AgentError as error:
        raise BadBoot(f"warming up the guest: {error}") from error
    if source not in _CLOCK_SOURCES:
        raise BadBoot(f"the guest measures time by {source}")
