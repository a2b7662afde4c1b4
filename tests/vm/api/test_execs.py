"""Commands in a real guest, through the API: who runs them and with which variables, and a hundred
at once."""
import base64
import time
from concurrent.futures import ThreadPoolExecutor

import httpx

from tests.stack.waiting import until

AT_ONCE = 100


def test_a_hundred_commands_run_in_one_guest_at_the_same_time(vm_stack, vm_alice):
    """None of them ends before all of them run: each waits at a gate that is opened when the last
    has come."""
    sandbox = vm_alice.create()["id"]
    limits = httpx.Limits(max_connections=None)
    with httpx.Client(
        base_url=vm_stack.api_url, timeout=240, trust_env=False, limits=limits
    ) as http, ThreadPoolExecutor(AT_ONCE) as pool:

        def shell(line):
            body = {"cmd": line, "cwd": "/tmp", "timeoutMs": 200_000}
            answer = http.post(f"/v1/sandboxes/{sandbox}/exec", json=body,
                               headers=vm_alice.key_headers)
            assert answer.status_code == 200, answer.text
            return answer.json()["stdout"]

        shell("mkdir here && mkfifo gate")
        visits = [
            pool.submit(shell, f"echo > here/{number}; : < gate; echo {number}")
            for number in range(AT_ONCE)
        ]
        deadline = time.monotonic() + 180
        while (come := int(shell("ls here | wc -l"))) < AT_ONCE:
            assert time.monotonic() < deadline, f"only {come} run"
        read = http.get(f"/v1/sandboxes/{sandbox}", headers=vm_alice.key_headers)
        assert read.status_code == 200 and read.json()["status"] == "running"
        shell(": > gate")
        assert sorted(int(visit.result()) for visit in visits) == list(range(AT_ONCE))
    vm_alice.delete(f"/v1/sandboxes/{sandbox}")


def variables(persona, sandbox, **body):
    lines = persona.exec(sandbox["id"], "env", **body)["stdout"].splitlines()
    return dict(line.split("=", 1) for line in lines)


def test_in_a_real_guest_a_command_is_root_with_our_variables_and_the_callers(vm_alice):
    made = vm_alice.create(env={"FROM": "create", "BOTH": "create"})
    call = {"BOTH": "call", "OPENAI_BASE_URL": "https://x.example/?a=b c"}
    seen = variables(vm_alice, made, env=call)
    assert (seen["FROM"], seen["BOTH"], seen["OPENAI_BASE_URL"]) == (
        "create",
        "call",
        call["OPENAI_BASE_URL"],
    )
    assert [name for name in variables(vm_alice, made) if "BASE" in name] == []
    assert vm_alice.exec(made["id"], "sh", "-c",
                         "id -u; pwd; touch /etc/mine")["stdout"] == "0\n/home/user\n"
    vm_alice.delete(f"/v1/sandboxes/{made['id']}")


FILL = """
import os
file, end, step = os.open('/var/full', os.O_CREAT | os.O_WRONLY), 0, 1 << 30
while step >= 4096:
    try:
        os.posix_fallocate(file, end, step)
        end += step
    except OSError:
        step //= 2
"""


def test_a_full_disk_is_told_as_such_and_commands_still_run(vm_alice):
    made = vm_alice.create()["id"]
    path = f"/v1/sandboxes/{made}"
    assert vm_alice.exec(made, "python3", "-c", FILL)["exitCode"] == 0
    content = base64.b64encode(bytes(1 << 20)).decode()
    # The log of a detached command would hold that there is no such program.
    for answer in (vm_alice.post(f"{path}/files", json=[{"path": "new", "content": content}]),
                   vm_alice.request("PUT", f"{path}/uploads/new", content=bytes(1 << 20)),
                   vm_alice.post(f"{path}/exec", json={"cmd": "none", "args": [],
                                                       "detached": True})):
        assert answer.status_code == 409, answer.text
        assert "the disk of the sandbox is full" in answer.json()["error"]
    assert vm_alice.exec(made, "ls", "/home/user")["stdout"] == ""
    assert vm_alice.exec(made, "rm", "/var/full")["exitCode"] == 0
    assert vm_alice.request("PUT", f"{path}/uploads/new", content=b"x").status_code == 201
    vm_alice.delete(path)


# Each beat is said to a caller who may have gone; the nonce lives in the memory of the command.
BEATS = ("read -r nonce < /proc/sys/kernel/random/uuid; while sleep 0.1; do echo said;"
         " echo $nonce >> /dev/shm/beats; done")


def test_a_command_goes_on_without_its_caller_over_a_sleep_and_in_a_fork(vm_alice):
    """The guest hears that the caller is gone as soon as the command says something."""
    made = vm_alice.create()["id"]
    path = f"/v1/sandboxes/{made}"

    def beats(sandbox):
        line = "cat /dev/shm/beats 2>/dev/null || true"
        answer = vm_alice.post(f"/v1/sandboxes/{sandbox}/exec", json={"cmd": line})
        return answer.json()["stdout"].split()

    def goes_on(sandbox):
        heard = len(beats(sandbox))
        until(lambda: len(beats(sandbox)) > heard + 40)
        return len(set(beats(sandbox))) == 1

    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(vm_alice.post, f"{path}/exec",
                           json={"cmd": BEATS, "timeoutMs": 600_000})
        until(lambda: beats(made))
        fork = vm_alice.post(f"{path}/fork", json={}).json()["id"]
        vm_alice.wait_for(fork, "running")
        assert goes_on(fork), "the copy was made while somebody waited"
        assert vm_alice.post(f"{path}/hibernate").json()["status"] == "hibernated"
        assert call.result().status_code == 409
    assert vm_alice.post(f"{path}/wake").json()["status"] == "running"
    assert goes_on(made)
    for sandbox in (made, fork):
        vm_alice.delete(f"/v1/sandboxes/{sandbox}")
