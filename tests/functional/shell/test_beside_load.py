"""Two hundred open shells, one of them with 20 MB of output, do not slow the API down."""
import contextlib
import json
import multiprocessing
import statistics
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import pytest

from tests.clients.load import p99
from tests.clients.shells import ShellClient, url_of
from tests.fakes.hostile_guest import frame
from tests.fakes.hostile_guest import point_at as point_at_port
from tests.fakes.hostile_guest import serving

CONTROL = 7
SHELLS, GETS, OWNERS_LIMIT = 200, 300, 100


@pytest.fixture
def silent(alice, mallory, sim_stack):
    """Two sandboxes, of two owners, whose guests open shells and say nothing more."""
    with serving() as guest, contextlib.ExitStack() as made:
        guest.reply, guest.silent_s = frame(CONTROL, json.dumps({"type": "opened"}).encode()), 300
        found = []
        for persona in (alice, mallory):
            sandbox = persona.create()["id"]
            made.callback(persona.delete, f"/v1/sandboxes/{sandbox}")
            point_at_port(sim_stack, sandbox, guest.server_address[1])
            found.append((persona, sandbox))
        yield found


def durations(alice, path, going_on=lambda: False):
    """Of GETs of the API, at least GETS of them, and as long as `going_on`."""
    found = []
    while len(found) < GETS or going_on():
        began = time.monotonic()
        assert alice.get(path).status_code == 200
        found.append(time.monotonic() - began)
    return found


def read_twenty_megabytes(url, headers):
    """How much of it came, and the code of the end."""
    with ShellClient(url, headers) as shell:
        shell.type("stty -echo; head -c 20000000 /dev/zero | tr '\\0' x; exit\n")
        shell.to_the_end()
        return shell.seen.count(b"x"), shell.close_code


@pytest.mark.alone
def test_two_hundred_shells_and_twenty_megabytes_leave_the_api_as_quick(sim_stack, alice, silent,
                                                                        url):
    path = f"/v1/sandboxes/{silent[0][1]}"
    alone = durations(alice, path)
    # A process of its own reads, so that this one's threads do not wait for each other.
    spawn = multiprocessing.get_context("spawn")
    with (contextlib.ExitStack() as opened, ThreadPoolExecutor(20) as pool,
          ProcessPoolExecutor(1, spawn) as reader):
        reader.submit(abs, 0).result()

        def open_one(number):
            persona, sandbox = silent[number % 2]
            return ShellClient(url_of(sim_stack, sandbox), persona.key_headers)

        # One of alice's places is for the one with output.
        for shell in pool.map(open_one, range(2 * (OWNERS_LIMIT - 1))):
            opened.enter_context(shell)
        assert len(silent) * (OWNERS_LIMIT - 1) >= SHELLS - 2
        loud = reader.submit(read_twenty_megabytes, url, alice.key_headers)
        beside = durations(alice, path, lambda: not loud.done())
        count, close_code = loud.result()
        assert count >= 20_000_000 and close_code == 1000
    # Both cores may be busy with the output; nobody waits for a thread or for another's bytes.
    assert statistics.median(beside) < 4 * statistics.median(alone)
    assert p99(beside) < 8 * p99(alone)
