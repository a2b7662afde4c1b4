"""A gateway that is told to end, with answers under way."""
import http.client

import pytest

from tests.clients.guest_gateway import question


def test_what_is_under_way_is_broken_off_and_written_down(gateway, asker, upstream):
    process, _ = gateway
    upstream.words, upstream.pause_s = 1000, 0.05
    link, answer = asker.begin("/v1/chat/completions", question(stream=True))
    heard = b""
    while b"w2" not in heard:
        heard += answer.readline()
    process.terminate()
    assert process.wait(20) == 0
    with pytest.raises((http.client.IncompleteRead, ConnectionError)):
        answer.read()
    link.close()
    row = asker.last_call()
    assert not row.complete and 3 <= row.output_tokens < 100 and not row.swept
