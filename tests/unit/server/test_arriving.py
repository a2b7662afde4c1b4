"""When a request is complete enough for a thread, whatever pieces it comes in."""
import pytest

from app.http.server.arriving import BODY_MAX_BYTES, HEAD_MAX_BYTES, Arriving, Stage

GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
POST = b"POST / HTTP/1.1\r\nHost: x\r\n%s\r\n%s"


def post(head, body):
    return POST % (head, body)


COMPLETE = {
    "no body": GET,
    "blank lines before it": b"\r\n\r\n" + GET,
    "no headers": b"GET / HTTP/1.1\r\n\r\n",
    "a body": post(b"Content-Length: 5\r\n", b"12345"),
    "a length in other letters": post(b"content-LENGTH:\t5 \r\n", b"12345"),
    "a length of many digits": post(b"Content-Length: %s5\r\n" % (b"0" * 30), b"12345"),
    "an empty body": post(b"Content-Length: 0\r\n", b""),
    "chunks": post(b"Transfer-Encoding: chunked\r\n", b"3\r\nabc\r\n0\r\n\r\n"),
    "no chunk": post(b"Transfer-Encoding: chunked\r\n", b"0\r\n\r\n"),
    "trailers": post(b"Transfer-Encoding: gzip, chunked\r\n", b"1\r\na\r\n000;x=y\r\nA: b\r\n\r\n"),
}


@pytest.mark.parametrize("request_bytes", COMPLETE.values(), ids=COMPLETE)
def test_it_is_complete_with_its_last_byte_and_not_before(request_bytes):
    for step in (1, 2, 3, 7, len(request_bytes)):
        arriving = Arriving()
        for start in range(0, len(request_bytes), step):
            assert arriving.stage is not Stage.COMPLETE
            arriving.add(request_bytes[start:start + step])
        assert arriving.stage is Stage.COMPLETE
        assert bytes(arriving.received) == request_bytes.lstrip(b"\r\n")
    assert Arriving(request_bytes).stage is Stage.COMPLETE


def test_what_comes_after_a_request_is_kept():
    assert bytes(Arriving(GET + GET[:5]).received) == GET + GET[:5]
    assert Arriving(GET[:5]).stage is Stage.HEAD


@pytest.mark.parametrize("head", [
    b"PUT /x HTTP/1.1\r\nContent-Length: 5\r\n\r\n",
    b"PUT /x HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n",
    b"POST /x HTTP/1.1\r\nContent-Length: %d\r\n\r\n" % (BODY_MAX_BYTES + 1),
], ids=["an upload", "a chunked upload", "large"])
def test_a_thread_takes_it_up_without_its_body(head):
    assert Arriving(head).stage is Stage.STREAMED


@pytest.mark.parametrize("more", [
    b"Content-Length: 5\r\n\r\n12345", b"Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n"])
def test_an_upload_that_comes_with_its_head_is_complete(more):
    request = b"PUT /x HTTP/1.1\r\n" + more
    assert Arriving(request).stage is Stage.COMPLETE
    assert Arriving(request[:-1]).stage is Stage.STREAMED


@pytest.mark.parametrize(("head", "body"), [
    (b"Content-Length: -1\r\n", b""), (b"Content-Length: x\r\n", b""),
    (b"Transfer-Encoding: chunked\r\n", b"-5\r\n"),
    (b"Transfer-Encoding: chunked\r\n", b"zz\r\n"),
    (b"Transfer-Encoding: chunked\r\n", b"1" * 1025),
])
def test_nothing_more_is_read_of_what_is_no_request(head, body):
    assert Arriving(post(head, body)).stage is Stage.COMPLETE


def test_an_end_of_chunks_inside_of_a_chunk_is_none():
    arriving = Arriving(post(b"Transfer-Encoding: chunked\r\n", b"14\r\n\r\n0\r\n\r\n"))
    assert arriving.stage is Stage.BODY
    arriving.add(b"x" * 13 + b"\r\n0\r\n")
    assert arriving.stage is Stage.BODY
    arriving.add(b"\r\n")
    assert arriving.stage is Stage.COMPLETE


def test_chunks_without_an_end_go_to_a_thread_when_they_are_too_many():
    arriving = Arriving(post(b"Transfer-Encoding: chunked\r\n", b""))
    for _ in range(BODY_MAX_BYTES // 1006):
        arriving.add(b"3e8\r\n" + b"x" * 1000 + b"\r\n")
        assert arriving.stage is Stage.BODY
    arriving.add(b"3e8\r\n" + b"x" * 1000 + b"\r\n")
    assert arriving.stage is Stage.STREAMED


@pytest.mark.parametrize("line", [b"X: y\r\n", b"x"])
def test_a_head_without_an_end(line):
    arriving = Arriving(b"GET / HTTP/1.1\r\n")
    arriving.add(line * ((HEAD_MAX_BYTES - 100) // len(line)))
    assert arriving.stage is Stage.HEAD
    arriving.add(line * 100)
    assert arriving.stage is Stage.TOO_LARGE


def test_who_waits_for_leave_to_send_a_body():
    expects = Arriving(post(b"Content-Length: 5\r\nExpect: 100-continue\r\n", b""))
    assert expects.stage is Stage.BODY and expects.wants_continue
    assert not Arriving(post(b"Content-Length: 5\r\n", b"")).wants_continue
