"""Many clients doing everything at once to the same few sandboxes: only answers the contract knows,
and a true end."""
import random
import threading
import time
from collections import Counter

import pytest

THREADS, SANDBOXES, SECONDS = 12, 4, 6

# Action -> statuses it may have while others hibernate, wake, fork and delete the same sandbox.
ACTIONS = {
    ("POST", "/hibernate", None): {200, 409},
    ("POST", "/wake", None): {200, 409},
    ("POST", "/extend", None): {200, 409},
    ("POST", "/snapshot", None): {201, 409},
    ("POST", "/fork", None): {201, 409},
    ("POST", "/exec", "command"): {200, 409},
    ("POST", "/files", "file"): {204, 409},
    ("GET", "/files?path=/x", None): {200, 404, 409},
    ("GET", "", None): {200},
    ("DELETE", "", None): {200},
}
BODIES = {None: {}, "command": {"cmd": "echo x"}, "file": [{"path": "/x", "content": "eA=="}]}
WEIGHTS = [4, 4, 1, 2, 1, 6, 2, 2, 3, 1]


@pytest.mark.slow
def test_a_storm_leaves_no_lie_behind(alice):
    ids = [alice.create(timeout=3600)["id"] for _ in range(SANDBOXES)]
    forks, wrong, counts, ends = [], [], Counter(), time.monotonic() + SECONDS

    def client(seed):
        choose = random.Random(seed)
        while time.monotonic() < ends:
            place = choose.randrange(SANDBOXES)
            sandbox = ids[place]
            (method, tail, body), allowed = choose.choices(list(ACTIONS.items()), WEIGHTS)[0]
            answer = alice.request(method, f"/v1/sandboxes/{sandbox}{tail}", json=BODIES[body])
            counts[tail or method, answer.status_code] += 1
            if answer.status_code not in allowed:
                wrong.append((method, tail, answer.status_code, answer.text))
            if answer.status_code == 201 and tail == "/fork":
                forks.append(answer.json()["id"])
            if method == "DELETE":
                made = alice.post("/v1/sandboxes", json={"timeout": 3600})
                ids[place] = made.json()["id"]

    threads = [threading.Thread(target=client, args=[seed]) for seed in range(THREADS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(SECONDS + 120)
    assert not wrong, wrong[:5]
    assert {status for _, status in counts} >= {200, 201, 204, 409}
    for sandbox in {*ids, *forks}:
        settle(alice, sandbox)
        assert alice.delete(f"/v1/sandboxes/{sandbox}").json()["status"] == "stopped"


def settle(alice, sandbox):
    """Every sandbox is usable or honestly gone within a short while."""
    deadline = time.monotonic() + 60
    while (status := alice.get(f"/v1/sandboxes/{sandbox}").json()["status"]) == "provisioning":
        assert time.monotonic() < deadline, f"{sandbox} stays in provisioning"
        time.sleep(0.1)
    if status == "hibernated":
        assert alice.post(f"/v1/sandboxes/{sandbox}/wake").status_code == 200
    if status != "stopped":
        assert alice.exec(sandbox, "echo", "alive")["stdout"] == "alive\n"
