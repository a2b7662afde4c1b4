"""Which of the connections whose request is still arriving gives way first."""
import pytest

from app.http.server import waiting
from app.http.server.arriving import Arriving, Stage
from app.http.server.waiting import Waiting

HEAD = b"POST / HTTP/1.1\r\nHost: h\r\n"
BODY = HEAD + b"Content-Length: 9\r\n\r\n"


class Client:
    """What is known of a connection that has sent `data`."""

    def __init__(self, data):
        self.arriving = Arriving(data)


@pytest.fixture
def line(monkeypatch):
    """Waits in it begin a second after each other."""
    moments = iter(range(100))
    monkeypatch.setattr(waiting.time, "monotonic", lambda: next(moments))
    return Waiting({Stage.HEAD: 10.0, Stage.BODY: 30.0})


@pytest.mark.parametrize("sent", [[BODY, HEAD, HEAD], [HEAD, BODY, HEAD], [HEAD, BODY, BODY]])
def test_the_one_that_has_waited_longest_whatever_for(line, sent):
    clients = [Client(data) for data in sent]
    for each in clients:
        line.add(each)
    for each in clients:
        assert line.oldest() is each
        line.remove(each)
    assert line.oldest() is None


def test_who_is_at_another_stage_by_now_waits_from_then_on(line):
    first, second = Client(HEAD), Client(HEAD)
    line.add(first)
    line.add(second)
    first.arriving.add(b"Content-Length: 9\r\n\r\n")
    line.remove(first)
    line.add(first)
    assert line.oldest() is second
