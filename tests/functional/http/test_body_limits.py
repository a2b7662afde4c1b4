"""Bodies that are meant to fill the memory of an HTTP process, sent to the real servers: refused
before anything is built of them."""
import httpx
import pytest

from tests.stack.memory import growth

MIB = 1024**2
LISTS = b"[" + b"[]," * (16 * MIB // 3 - 2) + b"[]]"
# What reading 16 MiB takes: the bytes and the text that they are. As lists they took 440 MB.
ROOM_BYTES = 60 * 10**6


@pytest.mark.parametrize("path", ["/login", "/logout"])
def test_a_stranger_cannot_make_the_identity_host_build_16_mib_of_lists(sim_stack, path):
    grown = growth(sim_stack, "identity")

    def pieces():
        yield from (LISTS[start:start + MIB] for start in range(0, len(LISTS), MIB))

    for body in (LISTS, pieces()):
        try:
            answer = httpx.post(f"{sim_stack.auth_url}{path}", content=body, trust_env=False,
                                headers={"Content-Type": "application/json"})
        except (httpx.WriteError, httpx.ReadError):  # it hung up before we had sent everything
            continue
        assert answer.status_code == 413 and "16384" in answer.json()["error"]
    assert grown() < ROOM_BYTES


def test_the_largest_body_of_a_file_write_builds_no_millions_of_values(sim_stack, alice):
    grown = growth(sim_stack, "api")
    answer = alice.post("/v1/sandboxes/unknown/files", content=LISTS,
                        headers=alice.key_headers | {"Content-Type": "application/json"})
    assert answer.status_code == 400 and "too many values" in answer.json()["error"]
    assert grown() < ROOM_BYTES


def test_other_routes_take_a_quarter_of_a_mebibyte(alice):
    for size, status in ((256 * 1024, 400), (256 * 1024 + 1, 413)):
        answer = alice.post("/v1/sandboxes", content=b"{" * size,
                            headers=alice.key_headers | {"Content-Type": "application/json"})
        assert answer.status_code == status
        stays = answer.headers["Connection"] == "keep-alive"
        assert stays == (status == 400), "who asks again knows whether to connect anew"
