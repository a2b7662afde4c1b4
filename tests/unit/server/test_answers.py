"""What gunicorn sends and logs of an answer."""
import logging
import re
from datetime import timedelta

import pytest
from gunicorn import http
from gunicorn.config import Config
from gunicorn.http import wsgi

from config.gunicorn import answer_pieces
from config.gunicorn.access_log import AccessLogger

CLIENT = ("127.0.0.1", 1)


class Link:
    """Notes each piece that is sent."""

    def __init__(self):
        self.sent = []

    def sendall(self, data):
        self.sent.append(bytes(data))


def answer(monkeypatch, body, headers=(), method=b"GET"):
    """What is sent of an answer whose app gives the pieces of `body`, and what it was made with."""
    monkeypatch.setattr(wsgi, "Response", wsgi.Response)
    answer_pieces.install()
    parser = http.get_parser(Config(), iter([method + b" /v1/x?access_token=t HTTP/1.1\r\n\r\n"]),
                             CLIENT)
    request, link = next(parser), Link()
    made, environ = wsgi.create(request, link, CLIENT, CLIENT, Config())
    made.start_response("200 OK", list(headers))
    for piece in body:
        made.write(piece)
    made.close()
    return link.sent, made, request, environ


def test_the_head_comes_with_the_first_piece(monkeypatch):
    length = [("Content-Length", "5")]
    [first, second], *_ = answer(monkeypatch, [b"hel", b"lo"], length)
    assert re.fullmatch(rb"HTTP/1.1 200 OK\r\n.*\r\n\r\nhel", first, re.DOTALL)
    assert second == b"lo"


def test_it_comes_alone_where_there_is_no_body(monkeypatch):
    for body, method in (([], b"GET"), ([b"hello"], b"HEAD")):
        [head], *_ = answer(monkeypatch, body, [("Content-Length", "5")], method)
        assert head.endswith(b"\r\n\r\n")


def test_pieces_of_a_length_that_nobody_knows_are_chunks(monkeypatch):
    [first, second, end], *_ = answer(monkeypatch, [b"hel", b"lo"])
    assert first.endswith(b"\r\n\r\n3\r\nhel\r\n") and second == b"2\r\nlo\r\n"
    assert end == b"0\r\n\r\n"


@pytest.mark.parametrize("has_begun", [True, False])
def test_the_log_names_the_path_without_the_query(monkeypatch, has_begun, caplog):
    _, made, request, environ = answer(monkeypatch, [b"hello"], [("Content-Length", "5")])
    if not has_begun:
        made.status, made.sent = None, 0
    logger = AccessLogger(Config())
    monkeypatch.setattr(logger.access_log, "propagate", True)
    with caplog.at_level(logging.INFO, "gunicorn.access"):
        logger.access(made, request, environ, timedelta(seconds=1, milliseconds=20))
    said = "200 5" if has_begun else "- 0"
    assert set(caplog.messages) == {f"127.0.0.1 GET /v1/x {said} bytes 1020 ms"}
