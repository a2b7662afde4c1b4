"""What of an upstream's refusal is told on the API's host."""
import json

import pytest

from app.guest_gateway.llm.upstream_refusals import message_of

KEY = "sk-operators-own-key"


def body(message):
    return json.dumps({"type": "error", "error": {"type": "x", "message": message}}).encode()


def test_its_message_without_the_operator_s_key():
    assert message_of(body("max_tokens: too large"), KEY) == "max_tokens: too large"
    told = body(f"{KEY} is at its limit").replace(b"sk-", b"\\u0073k-")
    assert KEY not in told.decode() and message_of(told, KEY) == "*** is at its limit"


def test_a_long_one_is_cut_and_no_part_of_the_key_is_left():
    text = message_of(body("x" * 490 + KEY + "y" * 100), KEY)
    assert text == "x" * 490 + "***" + "y" * 7 + "..."


@pytest.mark.parametrize("said", [
    b"", b"<html>413</html>", b"\xff", b"[1]", b'"text"', b"null", b'{"error": "text"}',
    b'{"error": {"message": 7}}', b'{"error": {"message": " "}}', b'{"error": null}',
    b"[" * 100_000])
def test_one_that_has_none_gets_a_sentence_of_ours(said):
    assert message_of(said, KEY) == "The upstream refused the call, and did not say why."
