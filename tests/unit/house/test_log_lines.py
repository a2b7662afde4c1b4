"""Log lines: one line of a fixed form, with what `extra` carries and without any credential."""
import logging
import sys

import pytest

from config.logging import LineFormatter, masked


@pytest.mark.parametrize(("text", "wanted"), [
    ("key svc_sk_AbCdEfGhIjKlMnOp used", "key svc_sk_AbCdE*** used"),
    ("Authorization: Bearer abc.def-123", "Authorization: Bearer ***"),
    ("token eyJhbGciOiJFZERTQSJ9.eyJzdWIiOiJ4In0.c2ln", "token eyJhbGciOiJ***"),
    ("postgresql://svc:hunter2@127.0.0.1:5432/svc", "postgresql://svc:***@127.0.0.1:5432/svc"),
    ("redis://:hunter2@127.0.0.1/0", "redis://:***@127.0.0.1/0"),
    ("GET http://127.0.0.1:18080/health 200", "GET http://127.0.0.1:18080/health 200"),
])
def test_credentials_are_cut(text, wanted):
    assert masked(text) == wanted


def test_extra_values_follow_the_message():
    record = logging.makeLogRecord({
        "name": "n", "levelname": "INFO", "msg": "booted %s", "args": ("a", ), "created": 0.0,
        "msecs": 5.0, "took_ms": 12
    })
    assert LineFormatter().format(record) == "1970-01-01T00:00:00.005Z INFO n booted a took_ms=12"


def test_a_credential_in_a_traceback_is_cut_too():
    try:
        raise ValueError("svc_sk_AbCdEfGhIjKlMnOp")
    except ValueError:
        record = logging.makeLogRecord(
            {"name": "n", "levelname": "ERROR", "msg": "failed", "exc_info": sys.exc_info()})
    text = LineFormatter().format(record)
    assert "ValueError" in text and "IjKlMnOp" not in text


FORGED = "x\n2026-01-31T12:00:00.123Z INFO nodeworker forged"


@pytest.mark.parametrize("hostile", [
    FORGED, "x\r\nforged", "\x1b[2J\x1b[31mred", "a\0b", "\x9b31m", "a\u2028b", "a\x85b",
    "\u202egnp.exe", "\x7f\b\b\b",
])
@pytest.mark.parametrize("place", ["argument", "extra", "name of an extra", "exception", "stack"])
def test_nobody_can_write_a_line_of_their_own(hostile, place):
    fields = {"name": "n", "levelname": "INFO", "msg": "guest said %s", "args": ("hello", )}
    if place == "argument":
        fields["args"] = (hostile, )
    elif place == "extra":
        fields["said"] = hostile
    elif place == "name of an extra":
        fields[hostile] = 1
    elif place == "stack":
        fields["stack_info"] = f"Stack:\n{hostile}"
    else:
        try:
            raise ValueError(hostile)
        except ValueError:
            fields["exc_info"] = sys.exc_info()
    first, *others = LineFormatter().format(logging.makeLogRecord(fields)).split("\n")
    assert "guest said" in first and all(line.startswith("    ") for line in others)
    for line in (first, *others):
        assert line.isprintable(), repr(line)
    assert bool(others) is (place in ("exception", "stack"))


def test_letters_of_all_the_world_are_left_alone():
    record = logging.makeLogRecord({"name": "n", "levelname": "INFO", "msg": "für 日本 🎉 a\\b"})
    assert LineFormatter().format(record).endswith("für 日本 🎉 a\\b")
