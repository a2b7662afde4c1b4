"""What the owner is told of an operation that has failed for good."""
from types import SimpleNamespace

import pytest

from models.states import OperationKind, SandboxStatus
from nodeworker.handlers.agent_server import StillServing
from nodeworker.handlers.archives import ArchiveFailed, ArchiveUnusable
from nodeworker.handlers.failed_operations import failure
from nodeworker.handlers.fetch_boot_source import DiskNotHere
from nodeworker.hypervisor.driver import DriverError, NoDiskSpace, VmNotFound, VmState
from services.operations.claims import Claim

NOT_STARTED = "The sandbox could not be started."
ASLEEP = "The wake failed; the sandbox is hibernated."
NO_SPACE = "Its node has no disk space for it at present."


def told(kind, error):
    deps = SimpleNamespace(driver=SimpleNamespace(inspect=lambda _: VmState.SAVED))
    claimed = Claim(1, "box", 1, kind, 1, 1, None, "alice", "n1", "ops")
    sandbox = SimpleNamespace(id="box", status=SandboxStatus.HIBERNATED)
    outcome = failure(deps, claimed, sandbox, error)
    assert not outcome.ok and outcome.operator_error.startswith(f"{type(error).__name__}: ")
    return outcome.status, outcome.error


@pytest.mark.parametrize(("error", "boot", "wake"), [
    (DriverError("of operators alone"), NOT_STARTED, ASLEEP),
    (RuntimeError("of operators alone"), NOT_STARTED, ASLEEP),
    (NoDiskSpace("12 MB are free"), f"{NOT_STARTED} {NO_SPACE}", f"{ASLEEP} {NO_SPACE}"),
    (VmNotFound("no vm.json"), NOT_STARTED, "The sandbox's files are not on its node."),
    *((kind("Its\nreason."), "Its reason.", "Its reason.")
      for kind in (ArchiveFailed, ArchiveUnusable, DiskNotHere, StillServing)),
])
def test_the_owner_is_told_the_reason_only_if_it_may_be_shown(error, boot, wake):
    assert told(OperationKind.BOOT, error) == (SandboxStatus.STOPPED, boot)
    assert told(OperationKind.WAKE, error) == (SandboxStatus.HIBERNATED, wake)
