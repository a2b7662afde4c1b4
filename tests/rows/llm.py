"""Rows of LLM calls, their owners and their sandboxes, for tests of the rules."""
from config.settings import Settings
from models.database import connection
from models.ids import new_id
from models.sandboxes import Sandbox
from models.snapshots import Snapshot
from models.states import Plan, SandboxStatus
from models.usage import LlmCall
from models.users import User
from services.llm import call_rows
from services.llm.call_cost import Price, Usage
from services.llm.call_rows import Ending, NewCall
from services.llm.callers import LlmCaller
from services.llm.configured.upstreams import LlmConfig, Protocol, Target, Upstream

SETTINGS = Settings(llm_config="/llm.json", guest_secret="a key of the box", node_id="n1")
NEAR = Upstream("near", Protocol.OPENAI, "http://near.test/v1", "x-key", "key")
FAR = Upstream("far", Protocol.OPENAI, "http://far.test/v1", "x-key", "key")
PRICED, FREE = Target(NEAR, "priced"), Target(FAR, "unpriced")
PRICE = Price(1_000_000, 100_000, 2_000_000, 10_000_000)


def config(**changes):
    return LlmConfig({"near": NEAR, "far": FAR}, prices={"priced": PRICE}, **changes)


CONFIG = config()


def new_owner(plan=Plan.PRO):
    with connection():
        return User.create(id=new_id("usr"), email=f"{new_id()}@example.test",
                           password_hash="none", plan=plan)


def new_caller(**fields):
    return LlmCaller(new_id("usr"), new_id(), **fields)


def new_sandbox(owner, vm_ip="", status=SandboxStatus.RUNNING, **columns):
    with connection():
        return Sandbox.create(
            id=new_id(), owner=owner, status=status, vm_ip=vm_ip, vcpus=1, mem_mb=1024,
            agent_port=1, agent_token="t", idle_timeout_s=600, **{"node_id": "n1", **columns})


def copy_of(source, owner=None, **columns):
    """A sandbox made of a snapshot of another."""
    with connection():
        taken = Snapshot.create(id=new_id("snap"), owner=owner or source.owner_id, node_id="n1",
                                source_sandbox_id=source.id, vcpus=1, mem_mb=1024, cwd="/")
    return new_sandbox(owner or source.owner_id, snapshot_id=taken.id, **columns)


def begin(caller, target=PRICED, llm=CONFIG, **fields):
    return call_rows.begin(llm, caller, NewCall(**{
        "gateway": "g1", "protocol": Protocol.OPENAI, "model_asked": "asked", "target": target,
        "body_bytes": 400, **fields}))


def finish(call_id, target=PRICED, llm=CONFIG, status=200, complete=True, **tokens):
    return call_rows.finish(llm, call_id, Ending(target, status, Usage(**tokens), complete))


def call_row(call_id):
    with connection():
        return LlmCall.get_by_id(call_id)
