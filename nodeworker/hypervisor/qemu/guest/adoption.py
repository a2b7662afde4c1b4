"""Hand a guest over to its sandbox through its agent: clock, randomness, token, environment, and an
identity if it is new.

The guest asks for one of several tokens, depending on where an earlier try stopped: the one it was
given last, the one of the snapshot or warm image it was cloned from, or the image's after a cold
boot. All of them are tried, the likeliest first.
"""
import logging
import threading
from dataclasses import replace

from guest.agent.protocol import AGENT_PORT
from guest.client.agent_client import AgentClient
from guest.client.errors import AgentError, AgentRefused, AgentUnauthorized, AgentUnreachable
from guest.client.identity import GuestIdentity
from nodeworker.hypervisor.driver import DriverError, MachineSpec
from nodeworker.hypervisor.qemu.guest.identity import new_identity
from nodeworker.hypervisor.qemu.records import Task
from nodeworker.hypervisor.qemu.vm import Vm

_log = logging.getLogger(__name__)
# After a start the CPU belongs to the guest and its first caller.
_CALM_S = 1.0


class BadBoot(DriverError):
    """A guest did not come up, or not well; booting it again may help."""


def agent_of(vm: Vm, token: str) -> AgentClient:
    """The agent of a machine's guest, as it answers to `token`."""
    return AgentClient(vm.slot.address, AGENT_PORT, token)


def adopt(vm: Vm, spec: MachineSpec, *, renew: bool, restored: bool, limit_s: float) -> None:
    """After it the guest answers to `spec.agent_token` only; `restored` says that its agent listens
    already.

    Raises BadBoot if it is silent, DriverError if it refuses.
    """
    before = vm.record.baseline
    has_run = before is not None and before.has_run
    is_called = restored and vm.record.task is not Task.SPARE
    rehearse = is_called and not has_run
    wanted = replace(_identity(spec, renew=renew), rehearse=rehearse)
    for token in vm.rundir.tokens():
        try:
            _adopt(agent_of(vm, token), wanted, limit_s, restored=restored, is_called=is_called)
        except AgentUnauthorized:
            continue
        except AgentRefused as refusal:
            raise DriverError(
                f"the guest of {spec.sandbox_id} refused its identity: {refusal}") from refusal
        except AgentError as error:
            raise BadBoot(f"the guest of {spec.sandbox_id} does not answer: {error}") from error
        else:
            _remember_token(vm, spec)
            return
    raise DriverError(f"the guest of {spec.sandbox_id} knows none of its tokens")


def _remember_token(vm: Vm, spec: MachineSpec) -> None:
    """The guest asks for its sandbox's token now, and for the image's once it boots from its disk:
    with both, the next wake has nothing to write down before it can begin."""
    asked = (spec.agent_token, vm.host.image_for(vm.machine).agent_token)
    if vm.rundir.tokens() != asked:
        vm.rundir.write_tokens(*asked, named=vm.record.task is not Task.CREATE)


def _adopt(agent: AgentClient, wanted: GuestIdentity, limit_s: float, *, restored: bool,
           is_called: bool) -> None:
    """Dial once if the agent listens: the first packet waits in the tap until the guest runs. A
    patient dial keeps opening connections, which cost an emulated guest 5 to 10 ms each (a wake
    took 212 instead of 156 ms)."""
    if restored:
        try:
            agent.adopt(wanted, timeout_s=limit_s, keep=is_called)
            if is_called:
                _close_later(agent)
            return
        except AgentUnreachable:
            _log.warning("the guest of %s did not take the first connection", wanted.sandbox_id)
    agent.adopt(wanted, timeout_s=limit_s, patient=True)


def _close_later(agent: AgentClient) -> None:
    """Close its connection when the first caller has been served: what a guest does to forget one
    takes an emulated one some milliseconds, just when its first command comes."""
    closing = threading.Timer(_CALM_S, agent.close)
    closing.daemon = True
    closing.start()


def _identity(spec: MachineSpec, *, renew: bool) -> GuestIdentity:
    if not renew:
        return GuestIdentity(spec.agent_token, spec.sandbox_id, False, spec.env)
    fresh = new_identity(spec.sandbox_id)
    return GuestIdentity(spec.agent_token, spec.sandbox_id, True, spec.env, fresh.hostname,
                         fresh.machine_id, fresh.host_key_private, fresh.host_key_public)
