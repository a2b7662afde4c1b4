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
