"""The fields of a form: found where every reader of forms finds them, or refused."""
import pytest

from app.guest_gateway.llm.forms import find_fields
from services.errors import InvalidRequest

NAME = b'Content-Disposition: form-data; name="model"'


def found(head):
    body = b"--limit\r\n" + head + b"\r\n\r\nvalue\r\n--limit--\r\n"
    fields = find_fields(body, b"--limit", ["model"])
    return {name: body[slice(*place)] for name, place in fields.items()}


@pytest.mark.parametrize("head", [
    NAME, NAME.lower(), NAME + b"\r\nContent-Type: text/plain", b"Content-Length: 5\r\n" + NAME,
    NAME + b'; filename="a; b.wav"; filename*=utf-8\'\'a%20b', NAME + b"; filename=a.wav"])
def test_a_field_as_clients_write_it(head):
    assert found(head) == {"model": b"value"}
    assert found(head.replace(b'"model"', b'"file"')) == {}


@pytest.mark.parametrize("head", [
    b"Content-Disposition: form-data; name=model", b"Content-Type: text/plain",
    b'Content-Disposition: form-data; name="a"; name="model"', NAME + b"; name=a",
    b'Content-Disposition: form-data; name="a"; filename="x"; name=model',
    b"Content-Disposition: form-data; name*=utf-8\'\'model", NAME + b"\r\n" + NAME,
    b'Content-Disposition: form-data; name="a"\r\n ; name=model',
    b'X: a\nContent-Disposition: form-data; name=model\r\n' + NAME.replace(b"model", b"a"),
    b'Content-Disposition: form-data; name="a\\"; name=\\"model"'])
def test_a_part_that_could_be_read_in_two_ways_is_refused(head):
    with pytest.raises(InvalidRequest, match="plain header"):
        found(head)
