"""A hundred commands at once in one real guest, through the API."""
import time
from concurrent.futures import ThreadPoolExecutor

import httpx

AT_ONCE = 100


def test_a_hundred_commands_run_in_one_guest_at_the_same_time(vm_stack, vm_alice):
    """None of them ends before all of them run: each waits at a gate that is opened when the last
    has come."""
    sandbox = vm_alice.create()["id"]
    limits = httpx.Limits(max_connections=None)
    with httpx.Client(
        base_url=vm_stack.api_url, timeout=90, trust_env=False, limits=limits
    ) as http, ThreadPoolExecutor(AT_ONCE) as pool:

        def shell(line):
            body = {"cmd": line, "cwd": "/tmp", "timeoutMs": 80_000}
            answer = http.post(f"/v1/sandboxes/{sandbox}/exec", json=body,
                               headers=vm_alice.key_headers)
            assert answer.status_code == 200, answer.text
            return answer.json()["stdout"]

        shell("mkdir here && mkfifo gate")
        visits = [
            pool.submit(shell, f"echo > here/{number}; : < gate; echo {number}")
            for number in range(AT_ONCE)
        ]
        deadline = time.monotonic() + 60
        while (come := int(shell("ls here | wc -l"))) < AT_ONCE:
            assert time.monotonic() < deadline, f"only {come} run"
        read = http.get(f"/v1/sandboxes/{sandbox}", headers=vm_alice.key_headers)
        assert read.status_code == 200 and read.json()["status"] == "running"
        shell(": > gate")
        assert sorted(int(visit.result()) for visit in visits) == list(range(AT_ONCE))
    vm_alice.delete(f"/v1/sandboxes/{sandbox}")
