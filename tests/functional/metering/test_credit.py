"""Compute credit: off by default, then 402 on creations once the month's list-rate cost reaches
it."""
import os
import subprocess
import sys
from datetime import timedelta
from decimal import Decimal

import pytest

from bin.stack.site import ROOT
from models.database import connection, now
from models.ids import new_id
from models.sandboxes import Sandbox
from models.snapshots import Snapshot
from models.states import Plan
from models.usage import UsageTally
from services.hosts.nodes import heartbeat
from services.metering import credit
from services.metering.counting import month_of
from services.metering.prices import COST_UNITS
from tests.stack.edge import NODE, make_edge

SANDBOXES = "/v1/sandboxes"


@pytest.fixture(scope="module")
def limited(postgres_url, redis_url, tmp_path_factory):
    """Both hosts with ten units of credit for one plan."""
    keys = tmp_path_factory.mktemp("keys")
    yield from make_edge(postgres_url, redis_url, keys, compute_credit={"legacy_pro": Decimal(10)})


@pytest.fixture(autouse=True)
def alive(limited):
    heartbeat(NODE)


def spend(owner, amount, months_ago=0):
    month = month_of(now())
    for _ in range(months_ago):
        month = (month - timedelta(days=1)).replace(day=1)
    with connection():
        UsageTally.create(
            owner_id=owner.id, month=month, wall_clock_ms=1, cost=int(Decimal(amount) * COST_UNITS)
        )


def create(edge, owner, **body):
    return edge.api.post(SANDBOXES, json=body, headers=edge.key(owner))


def test_creation_stops_when_the_month_has_cost_what_the_plan_allows(limited):
    owner = limited.newcomer()
    spend(owner, "9.999999")
    assert create(limited, owner).status_code == 201
    spend(owner, "0.000001")
    answer = create(limited, owner)
    assert answer.status_code == 402
    assert answer.json["error"].startswith("insufficient compute credit: 10.00 of 10.00 are used")


def test_both_forks_are_refused_and_nothing_else(limited):
    owner = limited.newcomer()
    headers = limited.key(owner)
    source = create(limited, owner).json["id"]
    snapshot_id = new_id("snap")
    with connection():
        Sandbox.update(status="running", task=None).where(Sandbox.id == source).execute()
        Snapshot.create(id=snapshot_id, owner=owner.id, node_id="n1", source_sandbox_id=source,
                        state="ready", vcpus=1, mem_mb=1024, cwd="/home/user")
    spend(owner, 11)
    for path, body in ((f"{SANDBOXES}/{source}/fork", {}), (f"{SANDBOXES}/fork", {
            "snapshotId": snapshot_id
    })):
        answer = limited.api.post(path, json=body, headers=headers)
        assert answer.status_code == 402 and "compute credit" in answer.json["error"], path
    with connection():
        assert Sandbox.get_by_id(source).task is None, "no capture was begun"
    for call in (f"{SANDBOXES}/{source}", f"{SANDBOXES}/{source}/usage", SANDBOXES):
        assert limited.api.get(call, headers=headers).status_code == 200
    assert limited.api.post(f"{SANDBOXES}/{source}/wake", headers=headers).status_code == 200
    assert limited.api.get(SANDBOXES, headers=headers).json["computeCostBilled"] is False


def test_a_refused_create_does_not_use_its_key_up_and_a_replay_needs_no_credit(limited):
    owner = limited.newcomer()
    made = create(limited, owner, idempotencyKey="made").json
    spend(owner, 10)
    assert create(limited, owner, idempotencyKey="refused").status_code == 402
    assert create(limited, owner, idempotencyKey="made").json == made
    credit.grant(owner, Decimal(5))
    assert create(limited, owner, idempotencyKey="refused").status_code == 201


def test_another_month_another_owner_and_a_plan_without_a_limit_do_not_count(limited):
    owner, other, unlimited = limited.newcomer(), limited.newcomer(), limited.newcomer(
        Plan.LEGACY_MAX)
    spend(other, 100)
    spend(unlimited, 100)
    spend(owner, 100, months_ago=1)
    assert create(limited, owner).status_code == create(limited, unlimited).status_code == 201
    assert create(limited, other).status_code == 402


def test_off_unless_configured(edge):
    owner = edge.newcomer()
    heartbeat(NODE)
    spend(owner, 1_000_000)
    assert create(edge, owner).status_code == 201


@pytest.fixture
def operator(limited):
    """Runs a command as an operator would: what it says on success, or (refused) on failure."""
    environ = os.environ | {
        "SVC_DATABASE_URL": limited.settings.database_url, "SVC_COMPUTE_CREDIT": "legacy_pro=10"
    }

    def run(*words, refused=False):
        command = [sys.executable, "-m", "app.operator", "credit", *words]
        result = subprocess.run(command, cwd=ROOT, env=environ, capture_output=True, text=True,
                                timeout=60, check=False)
        assert (result.returncode != 0) is refused, result.stdout + result.stderr
        return result.stderr if refused else result.stdout

    return run


@pytest.mark.slow
def test_an_operator_sees_and_grants_credit(limited, operator):
    owner = limited.newcomer()
    spend(owner, "12.5")
    assert create(limited, owner).status_code == 402
    assert operator("grant", owner.email, "2.5") == "granted\n"
    assert create(limited, owner).status_code == 402
    assert operator("grant", owner.email, "0.5", "--note", "sorry") == "granted\n"
    assert create(limited, owner).status_code == 201
    shown = operator("show", owner.email).splitlines()
    assert shown == [f"month {now():%Y-%m}", "credit 13.00", "granted 3.00", "used 12.50"]
    assert "credit no limit" in operator("show", limited.newcomer(Plan.PRO).email)


@pytest.mark.slow
@pytest.mark.parametrize("amount", ["0", "-1", "x", "nan", "1e12"])
def test_a_senseless_grant_is_refused_in_words(limited, operator, amount):
    said = operator("grant", "--", limited.newcomer().email, amount, refused=True)
    assert said.startswith("Error: ") and len(said.splitlines()) == 1
