"""The master of an HTTP process is killed with a call under way: the port is free at once, and the
call ends as it should."""
import contextlib
import os
import signal
import threading

import httpx
import pytest

from bin.stack.free_ports import free_port
from tests.fakes.hostile_guest import ENDED, RESULT, frame
from tests.stack.memory import children
from tests.stack.processes import Process
from tests.stack.waiting import eventually


def answers(url):
    with contextlib.suppress(httpx.HTTPError):
        return httpx.get(f"{url}/health", timeout=5, trust_env=False).status_code == 200
    return False


def master_of(process):
    """The gunicorn master: the process itself, or the child of its shell."""
    pid = process.pid
    with open(f"/proc/{pid}/comm", encoding="ascii") as name:
        return pid if "gunicorn" in name.read() else children(pid)[0]


@pytest.mark.slow
def test_the_next_master_listens_at_once_and_no_call_is_lost(
        sim_stack, alice, guest, hostile, tmp_path):
    url = f"http://127.0.0.1:{free_port(0)}"
    values = {"SVC_API_URL": url, "SVC_API_WORKERS": "2"}
    guest.delay_s, guest.reply = 6, frame(RESULT, ENDED)
    under_way = []
    call = threading.Thread(target=lambda: under_way.append(
        httpx.post(f"{url}/v1/sandboxes/{hostile}/exec", json={"cmd": "x"}, timeout=60,
                   headers=alice.key_headers, trust_env=False)))
    with Process(sim_stack, "api", values, tmp_path / "first") as first:
        assert eventually(lambda: answers(url), 60), first.log.read_text()
        orphans = children(master_of(first))
        assert len(orphans) == 2
        call.start()
        assert eventually(lambda: guest.asked, 60), first.log.read_text()
        os.kill(master_of(first), signal.SIGKILL)
        assert eventually(lambda: not answers(url), 60), "orphans go on listening"
        assert call.is_alive(), "the call was to be under way"
        with Process(sim_stack, "api", values, tmp_path / "second") as second:
            assert eventually(lambda: answers(url), 60), second.log.read_text()
            call.join(60)
            assert "in use" not in second.log.read_text()
        assert eventually(
            lambda: not any(os.path.exists(f"/proc/{pid}/fd/0") for pid in orphans),
            60), "orphans stay"
    assert under_way and under_way[0].status_code == 200
