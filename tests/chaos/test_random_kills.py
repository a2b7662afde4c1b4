"""kill -9 of any process, server included, at random moments of many operations; then every row is
stable and true.

Runs on the simulated driver, whose machines live through the death of the workers as real ones do,
so that hundreds of operations fit into a minute.
"""
import contextlib
import random
import threading
import time

import httpx
import pytest

from tests.stack.waiting import until

VICTIMS = ("api", "control", "relay", "beat", "node-ctl", "node-ops", "redis", "postgres")
# At least; then as many as it takes until the clients have gone round so often.
KILLS, ROUNDS = 24, 8
# Of so many kills all but one find the clients at work; the other hits what is starting again.
AT_WORK = 3
STABLE = {"running", "hibernated", "stopped"}


class Client(threading.Thread):
    """A user who never gives up: repeats each request with the same key until it is answered, and
    remembers what was."""

    def __init__(self, persona, number, stop):
        super().__init__(name=f"client-{number}")
        self.persona = persona
        self.random = random.Random(number)
        self.number = number
        self.stop = stop
        self.acknowledged = {}
        self.unexpected = []
        self.rounds = self.answers = 0

    def ask(self, method, path, **options):
        """An answer below 500 (or 409); None if the run ended meanwhile."""
        while not self.stop.is_set():
            with contextlib.suppress(httpx.TransportError):
                answer = self.persona.request(method, path, **options)
                if answer.status_code < 500:
                    self.answers += 1
                    return answer
                if answer.status_code != 503:
                    self.unexpected.append(f"{method} {path}: {answer.status_code} {answer.text}")
            time.sleep(0.1)
        return None

    def run(self):
        while not self.stop.is_set():
            self.rounds += 1
            key = f"client {self.number} round {self.rounds}"
            answer = self.ask("POST", "/v1/sandboxes", json={"idempotencyKey": key})
            if answer is None:
                return
            sandbox_id = answer.json()["id"]
            self.acknowledged[key] = sandbox_id
            for _ in range(self.random.randint(1, 4)):
                action = self.random.choice(("hibernate", "wake", "snapshot", "fork"))
                self.ask("POST", f"/v1/sandboxes/{sandbox_id}/{action}")
            if self.random.random() < 0.5:
                self.ask("DELETE", f"/v1/sandboxes/{sandbox_id}")


def settled(persona, timeout_s=90):
    """All of the owner's sandboxes, once none has been in motion for a while."""
    deadline = time.monotonic() + timeout_s
    while True:
        with contextlib.suppress(httpx.TransportError):
            answer = persona.get("/v1/sandboxes?limit=500")
            if answer.status_code == 200:
                entries = answer.json()["sandboxes"]
                if all(entry["status"] in STABLE for entry in entries):
                    return entries
        assert time.monotonic() < deadline, answer.text
        time.sleep(0.3)


def count_answers(clients):
    return sum(client.answers for client in clients)


@pytest.fixture
def everything_up(sim_stack):
    yield
    sim_stack.start("postgres", "redis", *sim_stack.processes)
    sim_stack.wait_healthy()


@pytest.mark.timeout(600)
def test_nothing_acknowledged_is_lost(sim_stack, mallory, everything_up):
    stop = threading.Event()
    clients = [Client(mallory, number, stop) for number in range(4)]
    for client in clients:
        client.start()
    dice = random.Random(20261121)
    killed = 0
    while killed < KILLS or sum(client.rounds for client in clients) <= ROUNDS:
        if killed % AT_WORK:
            answered = count_answers(clients)
            until(lambda: count_answers(clients) > answered, timeout_s=60)
        time.sleep(dice.uniform(0.3, 1.5))
        killed += 1
        with contextlib.suppress(Exception):
            sim_stack.kill(dice.choice(VICTIMS))
    sim_stack.start("postgres", "redis", *sim_stack.processes)
    sim_stack.wait_healthy()
    stop.set()
    for client in clients:
        client.join(120)
        assert not client.is_alive()

    assert [text for client in clients for text in client.unexpected] == []
    settled(mallory)
    for client in clients:
        for key, sandbox_id in client.acknowledged.items():
            answer = mallory.get(f"/v1/sandboxes/{sandbox_id}")
            assert answer.status_code == 200 and answer.json()["status"] in STABLE, (
                key, answer.text,
            )
            again = mallory.post("/v1/sandboxes", json={"idempotencyKey": key})
            assert again.json()["id"] == sandbox_id, "one key, two sandboxes"

    # What is running answers; what is asleep wakes; everything can be deleted; nothing is left.
    for entry in settled(mallory):
        assert mallory.post(f"/v1/sandboxes/{entry['id']}/wake").status_code == 200, entry
        assert mallory.exec(entry["id"], "true")["exitCode"] == 0
        assert mallory.delete(f"/v1/sandboxes/{entry['id']}").json()["status"] == "stopped"
    assert settled(mallory) == []
