"""POST /v1/sandboxes/{id}/exec through every process, with simulated guests; real ones are in
tests/vm."""
import threading
import time

import pytest


@pytest.fixture(scope="module")
def sandbox(alice):
    made = alice.create(env={"FROM": "create", "BOTH": "create"})
    yield made["id"]
    alice.delete(f"/v1/sandboxes/{made['id']}")


def run(persona, sandbox, **body):
    return persona.post(f"/v1/sandboxes/{sandbox}/exec", json=body)


def test_the_contracts_result_and_nothing_more(alice, sandbox):
    answer = run(alice, sandbox, cmd="echo", args=["hello", "world"])
    assert answer.status_code == 200
    assert answer.json() == {"stdout": "hello world\n", "stderr": "", "exitCode": 0}


def test_cmd_alone_is_a_shell_line(alice, sandbox):
    assert run(alice, sandbox, cmd="echo a b").json()["stdout"] == "a b\n"


def test_a_failing_command_is_no_error_of_the_call(alice, sandbox):
    assert run(alice, sandbox, cmd="false").json()["exitCode"] == 1
    answer = run(alice, sandbox, cmd="no-such-program", args=[]).json()
    assert answer["exitCode"] == 127 and answer["stderr"]


def test_the_callers_variables_win_over_the_sandboxs(alice, sandbox):
    lines = run(alice, sandbox, cmd="env", env={"BOTH": "call",
                                                "MORE": "ü"}).json()["stdout"].splitlines()
    assert {"FROM=create", "BOTH=call", "MORE=ü"} <= set(lines)


def test_the_working_directory(alice, sandbox):
    assert run(alice, sandbox, cmd="pwd").json()["stdout"] == "/home/user\n"
    assert run(alice, sandbox, cmd="pwd", cwd="/tmp").json()["stdout"] == "/tmp\n"


def test_the_deadline(alice, sandbox):
    answer = run(alice, sandbox, cmd="sleep", args=["60"], timeoutMs=300).json()
    assert answer["exitCode"] == 124 and answer["timedOut"] is True


def test_detached_answers_at_once_and_says_where_the_log_is(alice, sandbox):
    answer = run(alice, sandbox, cmd="sleep", args=["60"], detached=True).json()
    assert answer["exitCode"] == 0 and isinstance(answer["pid"],
                                                  int) and answer["logPath"].startswith("/")


def test_many_at_once(alice, sandbox):
    results = []

    def one(number):
        results.append((number, run(alice, sandbox, cmd="echo",
                                    args=[str(number)]).json()["stdout"]))

    threads = [threading.Thread(target=one, args=[number]) for number in range(24)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert sorted(results) == [(number, f"{number}\n") for number in range(24)]


def test_it_never_wakes_a_sandbox(alice):
    made = alice.create()["id"]
    assert run(alice, made, cmd="true").status_code == 200
    alice.post(f"/v1/sandboxes/{made}/hibernate")
    answer = run(alice, made, cmd="true")
    assert answer.status_code == 409 and "hibernated" in answer.json()["error"]
    assert alice.get(f"/v1/sandboxes/{made}").json()["status"] == "hibernated"
    alice.post(f"/v1/sandboxes/{made}/wake")
    assert run(alice, made, cmd="true").status_code == 200
    alice.delete(f"/v1/sandboxes/{made}")
    answer = run(alice, made, cmd="true")
    assert answer.status_code == 409 and "stopped" in answer.json()["error"]


@pytest.mark.slow
@pytest.mark.parametrize("ending", ["hibernate", "delete"])
def test_a_command_whose_sandbox_goes_away_is_answered_soon(alice, ending):
    made = alice.create()["id"]
    answers = []
    began = time.monotonic()
    long_one = {"cmd": "sleep", "args": ["80"], "timeoutMs": 85_000}
    thread = threading.Thread(target=lambda: answers.append(run(alice, made, **long_one)))
    thread.start()
    time.sleep(1)
    if ending == "hibernate":
        assert alice.post(f"/v1/sandboxes/{made}/hibernate").status_code == 200
    else:
        assert alice.delete(f"/v1/sandboxes/{made}").status_code == 200
    thread.join(60)
    assert answers and answers[0].status_code == 409, answers
    assert time.monotonic() - began < 60, "the caller waited for the command's own deadline"
    alice.delete(f"/v1/sandboxes/{made}")


@pytest.mark.slow
def test_a_running_command_keeps_its_sandbox_awake(alice):
    made = alice.create(timeout=4)["id"]
    assert run(alice, made, cmd="sleep", args=["10"]).json()["exitCode"] == 0
    alice.wait_for(made, "hibernated", timeout_s=60)
    alice.delete(f"/v1/sandboxes/{made}")


def test_a_stranger_runs_nothing(mallory, sandbox):
    assert run(mallory, sandbox, cmd="env").status_code == 403
