"""What guests can make the API hold in memory, and how they can slow it down: against the real
API process."""
import contextlib
import threading
import time

import httpx
import psycopg2
import pytest

from tests.fakes.hostile_guest import DATA, ENDED, RESULT, STDERR, STDOUT, frame
from tests.stack.memory import growth

MIB = 1024**2


def at_once(count, call):
    """What several threads get; each its own."""
    answers = []
    threads = [threading.Thread(target=lambda: answers.append(call())) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert len(answers) == count
    return answers


def ask(alice, method, path, **options):
    return httpx.request(method, f"{alice.stack.api_url}{path}", headers=alice.key_headers,
                         timeout=100, trust_env=False, **options)


def test_large_reads_are_streamed(sim_stack, alice, guest, hostile):
    guest.reply = frame(DATA, b"x" * MIB) * 64 + frame(RESULT, {"sizeBytes": 64 * MIB})
    grown = growth(sim_stack, "api")

    def read():
        """A hash of the length would do: what counts is that all of it comes."""
        size = 0
        with httpx.stream("GET", f"{alice.stack.api_url}/v1/sandboxes/{hostile}/files?path=/x",
                          headers=alice.key_headers, timeout=100, trust_env=False) as answer:
            assert answer.status_code == 200
            for piece in answer.iter_bytes():
                size += len(piece)
        return size

    whole = len('{"content":""}\n') + (64 * MIB + 2) // 3 * 4
    assert at_once(3, read) == [whole] * 3
    assert grown() < 60 * MIB, "three such reads took 800 MB"


def test_output_that_is_no_text_costs_little_more_than_itself(sim_stack, alice, guest, hostile):
    guest.reply = (frame(STDOUT, b"\xff" * MIB) + frame(STDERR, b"\xfe" * MIB)) * 8 + frame(
        RESULT, ENDED)
    grown = growth(sim_stack, "api")
    answer = ask(alice, "POST", f"/v1/sandboxes/{hostile}/exec", json={"cmd": "x"}).json()
    assert answer["stdout"] == answer["stderr"] == "\ufffd" * 8 * MIB
    assert grown() < 60 * MIB, "it took 250 MB"


def test_a_read_that_its_guest_breaks_off_has_no_end(alice, guest, hostile):
    guest.reply = frame(DATA, b"x" * MIB) * 3 + frame(DATA, b"")
    with pytest.raises(httpx.RemoteProtocolError):
        ask(alice, "GET", f"/v1/sandboxes/{hostile}/files?path=/x")
    guest.reply = frame(DATA, b"x" * 1000)
    short = ask(alice, "GET", f"/v1/sandboxes/{hostile}/files?path=/x")
    assert short.status_code == 503, "nothing was sent yet"


def test_a_reader_that_hangs_up_gives_everything_back(sim_stack, alice, guest, hostile):
    guest.reply = frame(DATA, b"x" * MIB) * 60
    guest.silent_s = 30
    for _ in range(3):
        with httpx.stream("GET", f"{alice.stack.api_url}/v1/sandboxes/{hostile}/files?path=/x",
                          headers=alice.key_headers, timeout=100, trust_env=False) as answer:
            next(answer.iter_bytes())
    deadline = time.monotonic() + 30
    with contextlib.closing(
        psycopg2.connect(sim_stack.site.values["SVC_DATABASE_URL"])
    ) as link, link.cursor() as cursor:
        link.autocommit = True
        while True:
            cursor.execute("SELECT count(*) FROM activities WHERE sandbox_id = %s", (hostile,))
            if cursor.fetchone()[0] == 0:
                break
            assert time.monotonic() < deadline, "the sandbox is held awake by a client that is gone"
            time.sleep(0.2)


def test_guests_that_send_endless_small_frames_hold_nobody_up(alice, guest, hostile):
    guest.for_ever = frame(STDOUT, b"x") * 10_000
    answers = at_once(8, lambda: ask(alice, "POST", f"/v1/sandboxes/{hostile}/exec",
                                     json={"cmd": "x", "timeoutMs": 3_000_000}))
    assert {answer.status_code for answer in answers} == {503}
