"""Operations in the rows, with a test as the worker."""


from models.database import connection
from models.sandboxes import Sandbox
from models.states import Lane, SandboxStatus
from models.users import User
from nodeworker import runner
from services.operations import claims
from services.sandboxes import create
from services.sandboxes.caller import Caller
from services.sandboxes.copies import forks
from services.sandboxes.idle import touch_values
from services.sandboxes.outcomes import Outcome, finish
from services.sandboxes.requests import CreateRequest, LaunchOptions

CREATE = CreateRequest(LaunchOptions())


def caller(name, pinned_node=None):
    with connection():
        return Caller(User.get_by_id(name), pinned_node=pinned_node)


def row(sandbox_id):
    with connection():
        return Sandbox.get_by_id(sandbox_id)


def claim(sandbox_id, lease_s=10.0):
    with connection():
        return claims.claim(sandbox_id, row(sandbox_id).op_seq, "n1/ops", lease_s)


def succeed(sandbox_id, status, **columns):
    with connection():
        return finish(claim(sandbox_id), Outcome(True, status, sandbox=columns))


def boot(deps, owner="alice", request=CREATE):
    view = create.create(deps, caller(owner), request)
    succeed(view.id, SandboxStatus.RUNNING, vm_ip="10.201.0.6", **touch_values(600))
    return view.id


def fork_of(deps, source):
    return forks.of_sandbox(deps, caller("alice"), source, LaunchOptions()).id


def run(node, sandbox_id):
    """Be the worker that the sandbox's operation is announced to."""
    runner.run_announced(node, sandbox_id, row(sandbox_id).op_seq, Lane.OPS)
