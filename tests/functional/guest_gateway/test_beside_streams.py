"""Two hundred streams of models through the guest gateway leave the API as quick as it was, and
what a model says is passed on at once."""
import multiprocessing
import statistics
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor

import httpx
import pytest

from tests.clients.guest_gateway import Asker, question
from tests.clients.load import p99
from tests.host.guest_places import guest_places

# Of one guest 64 requests run at a time.
GUESTS, STREAMS = 4, 200
ROUNDS, GETS = 5, 200
# Each stream says five words a second, for as long as anybody listens.
WORDS, PAUSE_S = 100_000, 0.2


@pytest.fixture
def guests(sim_stack, alice, log):
    port = sim_stack.settings.guest_gateway_port
    with guest_places("tlw", "10.253.250.0/24", port, count=GUESTS) as places:
        made = [Asker(sim_stack, alice.create()["id"], place) for place in places]
        yield made
    for one in made:
        alice.delete(f"/v1/sandboxes/{one.sandbox_id}")


def durations(url, headers):
    """Of GETs over one connection, in seconds."""
    took = []
    with httpx.Client(headers=headers, trust_env=False, timeout=30) as http:
        http.get(url).raise_for_status()
        for _ in range(GETS):
            began = time.monotonic()
            http.get(url).raise_for_status()
            took.append(time.monotonic() - began)
    return took


@pytest.mark.alone
def test_two_hundred_streams_leave_the_api_as_quick(sim_stack, alice, guests, upstream):
    url = f"{sim_stack.api_url}/v1/sandboxes/{guests[0].sandbox_id}"
    upstream.words, upstream.pause_s = WORDS, PAUSE_S

    def begin(number):
        link, answer = guests[number % GUESTS].begin("/v1/chat/completions", question(stream=True))
        assert answer.status == 200
        return link, answer

    # The client is a process of its own: this one says the words.
    client = ProcessPoolExecutor(1, multiprocessing.get_context("spawn"))
    with client, ThreadPoolExecutor(20) as openers:
        def quickest():
            return min(p99(client.submit(durations, url, alice.key_headers).result())
                       for _ in range(ROUNDS))

        quickest()  # what is loaded once is loaded
        alone = quickest()
        opened = list(openers.map(begin, range(STREAMS)))
        try:
            beside = quickest()
            assert upstream.under_way == STREAMS, "none has ended meanwhile"
        finally:
            for link, answer in opened:
                answer.close()
                link.close()
    print(f"p99 {alone * 1e3:.1f} ms alone, {beside * 1e3:.1f} ms beside the streams")
    assert beside < 2 * alone


@pytest.mark.alone
def test_what_a_model_says_first_is_passed_on_sooner_than_the_api_answers(
    sim_stack, alice, asker, upstream
):
    upstream.words, upstream.pause_s = 2, 0.1
    delays = []
    for _ in range(40):
        link, answer = asker.begin("/v1/chat/completions", question(stream=True))
        answer.read(1)
        delays.append(time.monotonic() - upstream.begun_at)
        answer.read()
        link.close()
    url = f"{sim_stack.api_url}/v1/sandboxes/{asker.sandbox_id}"
    answers = durations(url, alice.key_headers)
    passed_on, answered = statistics.median(delays), statistics.median(answers)
    print(f"passed on in {passed_on * 1e3:.1f} ms, a GET takes {answered * 1e3:.1f} ms")
    assert 0 < passed_on < answered
