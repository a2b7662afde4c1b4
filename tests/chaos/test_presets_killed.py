"""kill -9 of the worker while it makes an agent preset ready in a real machine: the caller gets the
one sandbox it asked for, verified."""
import pytest

from tests.stack.fault_points import fault_point


@pytest.fixture
def fault(vm_stack):
    with fault_point(vm_stack) as armed:
        yield armed


# `pi` takes an emulated guest longer than a worker may talk to it.
@pytest.mark.parametrize(("point", "slug"), [("preset.started", "codex"), ("runner.parked", "pi"),
                                             ("preset.ended", "codex")])
def test_the_worker_dies(presets_alice, fault, point, slug):
    before = presets_alice.get("/v1/sandboxes").json()["total"]
    fault(point)
    body = {"template": slug, "size": "small", "idempotencyKey": f"killed at {point}"}
    answer = presets_alice.post("/v1/sandboxes", json=body)
    assert answer.status_code == 201, answer.text
    shown = answer.json()
    assert fault.reached()
    assert (shown["status"], shown["templateStatus"]) == ("running", "ready"), shown
    assert presets_alice.post("/v1/sandboxes", json=body).text == answer.text
    assert presets_alice.get("/v1/sandboxes").json()["total"] == before + 1
    log = presets_alice.exec(shown["id"], "tail", "-n", "1", shown["installLogPath"])["stdout"]
    assert log.startswith(f"{slug} ") and log.endswith(" is ready\n")
    presets_alice.delete(f"/v1/sandboxes/{shown['id']}")
