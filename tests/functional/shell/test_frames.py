"""What passes through an open shell, with a real terminal at the other end."""
import pytest

from tests.clients.shells import DATA, PING, PONG, PROTOCOL


def test_typing_output_exit_and_the_order_of_the_end(shell):
    shell.type("echo $((6*7)); exit 3\n")
    shell.until("\r42\r\n")
    assert shell.to_the_end() == 1000
    assert shell.controls == [{"type": "exit", "exitCode": 3}]


def test_the_terminal_has_a_size_and_takes_another(shell):
    shell.type("stty size\n")
    shell.until("24 80\r\n")
    shell.control(type="resize", cols=132, rows=50)
    shell.type("stty size\n")
    shell.until("50 132\r\n")


@pytest.mark.parametrize("control", [
    {"type": "resize", "cols": 0, "rows": 24}, {"type": "resize", "cols": "80", "rows": 24},
    {"type": "resize", "cols": True, "rows": 24}, {"type": "resize", "cols": 80, "rows": 1 << 40},
    {"type": "exit", "exitCode": 0}, {},
])
def test_a_control_frame_that_cannot_be_is_told_and_ends_nothing(shell, control):
    shell.control(**control)
    while not shell.controls:
        assert shell.take()
    assert shell.controls[0]["type"] == "error" and shell.controls[0]["error"]
    shell.type("echo still-$((1+1))\n")
    shell.until("still-2")


def test_a_ping_is_answered_with_the_same_rest(shell):
    shell.send(PING, b"\x00any\xff")
    frame = shell.receive()
    while frame[0] != PONG:
        frame = shell.receive()
    assert frame == (PONG, b"\x00any\xff")
    shell.send(PONG, b"nobody asked")
    shell.type("echo on\n")
    shell.until("on\r\n")


def test_characters_are_never_cut_by_a_frame(shell):
    """`take` decodes each frame by itself; the text is longer than many frames."""
    shell.type("stty -echo; for i in $(seq 5000); do printf 'a\u20ac\U0001F642'; done\n")
    shell.type("echo en''d\n")
    shell.until("end\r\n")
    shell.type("printf '\\xe2\\x82'; sleep 3; printf '\\xac.\\n'; echo later\n")
    # Half a character for a while: it is not held for ever.
    with pytest.raises(UnicodeDecodeError):
        shell.until("later\r\n")


def test_twenty_megabytes_come_whole(shell):
    shell.type("stty -onlcr -echo; echo ready-$((1+1))\n")
    shell.until("ready-2")
    shell.type("head -c 20000000 /dev/zero | tr '\\0' x; exit\n")
    assert shell.to_the_end() == 1000
    assert shell.seen.count(b"x") >= 20_000_000 and shell.controls[0]["exitCode"] == 0


@pytest.mark.parametrize(("send", "code"), [
    (lambda link: link.send("text"), 1003), (lambda link: link.send_binary(b"\x07?"), 1003),
    (lambda link: link.send_binary(b""), 1003),
    (lambda link: link.send_binary(b"\x00" + b"x" * 65536), 1009),
    (lambda link: link.send_binary(b"\x00" + b"x" * 1_000_000), 1009),
])
def test_what_is_no_message_of_ours_closes_with_a_code(shell, send, code):
    send(shell.socket)
    assert shell.to_the_end() == code and shell.reason


def test_the_largest_message_is_taken(shell):
    shell.type("stty raw -echo; echo ready-$((1+1)); head -c 65535 | wc -c; stty sane\n")
    shell.until("ready-2")
    shell.send(DATA, b"y" * 65535)
    shell.until("65535")


def test_only_our_subprotocol_is_chosen_and_nothing_compressed(shell):
    answered = shell.socket.handshake_response
    assert answered.subprotocol == PROTOCOL
    assert "sec-websocket-extensions" not in answered.headers
