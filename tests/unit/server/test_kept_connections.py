"""Which connections stay after an answer: those that were told so, however busy the host is."""
import socket

import pytest
from gunicorn.config import Config

from app.http.server import worker
from app.http.server.arriving import Arriving
from app.http.server.connection import Connection
from app.http.server.worker import PatientWorker

GET = b"GET / HTTP/1.1\r\nHost: h\r\n\r\n"
SMALL = b"POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello"
LARGE_HEAD = b"PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 3000000\r\n\r\n"


@pytest.fixture
def link():
    """A client's end of a connection, and what the worker knows of it."""
    ours, theirs = socket.socketpair()
    client = ("127.0.0.1", 1)
    connection = Connection(Config(), ours, client, client, 30.0, lambda link: None)
    yield theirs, connection
    ours.close()
    theirs.close()


def received(connection, data):
    """The request that begins with `data`, handed to its route."""
    connection.arriving = Arriving(data)
    connection.give_to_parser()
    return next(connection.parser)


def stays(connection):
    return PatientWorker._keepalive_after(None, connection, True)


@pytest.mark.parametrize("request_bytes", [GET, SMALL])
def test_one_whose_request_came_whole_stays_though_its_thread_had_to_wait(
        link, monkeypatch, request_bytes):
    monkeypatch.setattr(worker, "_UNREAD_S", 0.0)
    _, connection = link
    for _ in range(3):
        received(connection, request_bytes)
        assert stays(connection)


def test_one_whose_large_body_was_read_stays_though_its_thread_had_to_wait(link, monkeypatch):
    monkeypatch.setattr(worker, "_UNREAD_S", 0.0)
    theirs, connection = link
    request = received(connection, LARGE_HEAD + bytes(2_990_000))
    theirs.send(bytes(10_000))
    assert len(request.body.read()) == 3_000_000
    assert stays(connection)


def test_one_with_the_rest_of_a_body_on_its_way_stays(link):
    theirs, connection = link
    request = received(connection, LARGE_HEAD + bytes(2_990_000))
    request.body.read(2_990_000)
    theirs.send(bytes(10_000))
    assert stays(connection)


@pytest.mark.parametrize("left", [bytes(0), bytes(5_000)])
def test_one_that_owes_the_rest_of_a_body_does_not(link, left):
    theirs, connection = link
    request = received(connection, LARGE_HEAD + bytes(2_990_000))
    request.body.read(2_990_000)
    theirs.send(left)
    assert not stays(connection)


@pytest.mark.parametrize("head", [
    b"Content-Length: 9999999999999999999\r\n", b"Transfer-Encoding: chunked\r\n\r\nzz\r\n"])
def test_one_whose_body_the_parser_does_not_see_the_end_of_does_not(link, head):
    """What follows may belong to it."""
    _, connection = link
    received(connection, b"POST / HTTP/1.1\r\nHost: h\r\n" + head + b"\r\n")
    assert not stays(connection)
