"""What the variables of a machine are at its launch."""
from types import SimpleNamespace

import pytest

from models.states import OperationKind, PresetState, SandboxStatus
from nodeworker.bun_env import bun_env
from nodeworker.handlers.machine_spec import machine_spec
from nodeworker.hypervisor.host_facts import HostTuple
from services.hosts.assignments import SandboxOnNode

QUICKER = {"BUN_JSC_useDFGJIT": "0"}


def deps(accelerator):
    """Of a node whose machines run with it."""
    found = HostTuple("7.2", "microvm", accelerator, "max", "image")
    assert found.accelerator == accelerator
    return SimpleNamespace(driver=SimpleNamespace(host_tuple=lambda: found),
                           settings=SimpleNamespace(operation_attempts=3))


def sandbox(**changed):
    return SandboxOnNode(**{
        "id": "box", "owner_id": "alice", "status": SandboxStatus.PROVISIONING, "vcpus": 1,
        "mem_mb": 1024, "agent_port": 20000, "cwd": "/", "start_command": None,
        "readiness_port": None, "preferred_model": "", "cold_boots": 0,
        "preset": "pi", "preset_state": None, "preset_error": None, "agent_token": "",
        "env": {"MINE": "1"}, "process_env": {}, **changed})


@pytest.mark.parametrize(("accelerator", "env"), [("tcg", QUICKER), ("kvm", {})])
def test_bun_s_second_compiler_is_switched_off_in_emulation_alone(accelerator, env):
    assert bun_env(deps(accelerator)) == env


@pytest.mark.parametrize(("accelerator", "env"), [("tcg", QUICKER), ("kvm", {})])
@pytest.mark.parametrize("state", [None, PresetState.READY])
def test_a_machine_with_a_preset_has_them_beside_its_owner_s(accelerator, env, state):
    made = machine_spec(deps(accelerator), sandbox(preset_state=state))
    assert made.env == {**env, "MINE": "1"} and made.presets is (state is None)


def test_a_value_of_its_owner_s_wins():
    mine = {"BUN_JSC_useDFGJIT": "1"}
    assert machine_spec(deps("tcg"), sandbox(env=mine)).env == mine


def test_a_machine_without_a_preset_has_its_owner_s_alone():
    made = machine_spec(deps("tcg"), sandbox(preset=None))
    assert made.env == {"MINE": "1"} and not made.presets


@pytest.mark.parametrize("attempts", [1, 2, 3])
def test_a_machine_is_told_that_its_operation_is_not_tried_again(attempts):
    claimed = SimpleNamespace(attempts=attempts, kind=OperationKind.WAKE)
    assert machine_spec(deps("kvm"), sandbox(), claimed).is_last_try is (attempts == 3)
    assert not machine_spec(deps("kvm"), sandbox()).is_last_try
