"""Which connections the API gives to which process, and to whom it gives none."""
import os
import socket

import pytest

from app.http.server import handing_over
from app.http.server.handing_over import GUEST_GATEWAY, SHELL
from bin.stack.free_ports import free_port

HEAD = b"GET /v1/sandboxes/abc/shell HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\n\r\n"


@pytest.mark.parametrize(("head", "is_one"), [
    (HEAD, True),
    (HEAD.replace(b"/shell ", b"/shell?access_token=x "), True),
    (HEAD.replace(b"Upgrade: websocket", b"UPGRADE:\tWebSocket "), True),
    (HEAD.replace(b"/shell", b"/shells"), False),
    (HEAD.replace(b"/shell", b""), False),
    (HEAD.replace(b"abc", b"a/bc"), False),
    (HEAD.replace(b"GET", b"POST"), False),
    (HEAD.replace(b"Upgrade: websocket", b"X: upgrade: websocket"), False),
    (HEAD.replace(b"websocket", b"h2c"), False),
])
def test_what_begins_a_shell(head, is_one):
    assert handing_over.wanted_by(head) == (SHELL if is_one else None)


@pytest.mark.parametrize(("line", "is_one"), [
    ("GET /v1/models", True), ("HEAD /v1/models", True), ("GET /v1/models?limit=3", True),
    ("POST /v1/messages", True), ("POST /v1/messages?beta=true", True),
    ("DELETE /v1/models", False), ("GET /v1/messages", False), ("POST /v1/messages/x", False),
    ("GET /v1/modelsx", False), ("GET /x/v1/models", False),
])
def test_what_is_for_a_model(line, is_one):
    head = f"{line} HTTP/1.1\r\nHost: x\r\n\r\n".encode()
    assert handing_over.wanted_by(head) == (GUEST_GATEWAY if is_one else None)


@pytest.fixture
def ends():
    """A client's end of a connection, and the server's."""
    client, server = socket.socketpair()
    yield client, server
    client.close()
    server.close()


def test_a_connection_comes_over_with_what_was_read(ends):
    client, server = ends
    port = free_port()
    with handing_over.listen(SHELL, port) as listener:
        assert handing_over.hand_over(SHELL, port, server, HEAD)
        road, _ = listener.accept()
        with road:
            taken, received = handing_over.take_over(road)
    server.close()
    with taken:
        taken.sendall(b"hello")
    assert received == HEAD and client.recv(9) == b"hello"


def test_where_nobody_listens_nothing_is_given(ends):
    assert not handing_over.hand_over(SHELL, free_port(), ends[1], HEAD)


def test_another_account_gets_nothing(ends):
    port = free_port()
    os.seteuid(65534)
    try:
        listener = handing_over.listen(SHELL, port)
    finally:
        os.seteuid(0)
    with listener:
        assert not handing_over.hand_over(SHELL, port, ends[1], HEAD)
        road, _ = listener.accept()
        with road:
            assert handing_over.take_over(road) is None


def test_a_road_without_a_connection_is_none():
    port = free_port()
    with handing_over.listen(SHELL, port) as listener:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as road:
            road.connect(f"\0svc-shell-{port}")
            taken, _ = listener.accept()
            with taken:
                taken.setblocking(False)
                with pytest.raises(BlockingIOError):
                    handing_over.take_over(taken)
                road.send(b"no descriptor")
                assert handing_over.take_over(taken) is None
                with open(os.devnull) as no_socket:
                    socket.send_fds(road, [HEAD], [no_socket.fileno()])
                assert handing_over.take_over(taken) is None
