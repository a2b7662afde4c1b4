"""The frames of svc.shell.v1 as functions of their arguments."""
import pytest

from app.shell import frames

EURO, FACE = "\u20ac".encode(), "\U0001F642".encode()


def cut(*pieces):
    output = frames.Output()
    return [frame for piece in pieces for frame in output.frames(piece)], list(output.rest())


@pytest.mark.parametrize(("pieces", "shown", "rest"), [
    ([b"abc"], [b"abc"], []),
    ([EURO[:1], EURO[1:]], [EURO], []),
    ([b"a" + EURO[:2], EURO[2:] + b"b"], [b"a", EURO + b"b"], []),
    ([FACE[:3]], [], [FACE[:3]]),
    ([FACE[:1], FACE[1:2], FACE[2:3], FACE[3:]], [FACE], []),
    # What is not UTF-8 passes: Latin-1, the middle of a character, bytes that never begin one.
    ([b"caf\xe9 "], [b"caf\xe9 "], []),
    ([b"\x82\xac\x82\xac"], [b"\x82\xac\x82\xac"], []),
    ([b"\xff\xfe"], [b"\xff\xfe"], []),
])
def test_output_ends_between_characters(pieces, shown, rest):
    assert cut(*pieces) == ([b"\0" + part for part in shown], [b"\0" + part for part in rest])


@pytest.mark.parametrize("text", [b"x" * 200_000, EURO * 70_000, b"ab" + FACE * 50_000])
def test_frames_have_a_largest_size_and_lose_nothing(text):
    shown, rest = cut(text)
    assert rest == [] and b"".join(frame[1:] for frame in shown) == text
    assert max(map(len, shown)) <= 32 * 1024
    for frame in shown:
        frame[1:].decode()


@pytest.mark.parametrize("message", [b"", b"\x04", b"\xff", b"0"])
def test_a_message_of_no_type_is_refused(message):
    with pytest.raises(frames.Unsupported):
        frames.read(message)


@pytest.mark.parametrize("payload", [b"", b"[]", b"{}", b"\xff", b"[" * 30_000, b'{"type":"exit"}',
                                     b'{"type":"resize","cols":80}',
                                     b'{"type":"resize","cols":80.0,"rows":24}',
                                     b'{"type":"resize","cols":true,"rows":24}'])
def test_a_control_frame_that_is_no_resize(payload):
    with pytest.raises(ValueError):
        frames.read_resize(payload)


def test_control_frames():
    assert frames.read_resize(b'{"type":"resize","cols":132,"rows":50}') == (132, 50)
    assert frames.exit_of(7) == b'\x01{"type":"exit","exitCode":7}'
    assert frames.error_of("no") == b'\x01{"type":"error","error":"no"}'
