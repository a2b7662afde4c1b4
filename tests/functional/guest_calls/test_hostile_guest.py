"""What callers get when the thing behind the agent's port is broken or malicious: an error in time,
never a 500."""
import json
import threading
import time
from datetime import timedelta

import pytest

from app.http.owner_shares import Places
from bin.stack.free_ports import free_port
from guest.client.execs import ExecCalls
from models.database import connection, now
from models.nodes import PortBinding
from models.sandboxes import Activity, Sandbox
from services.guest_calls import files
from services.guest_calls.lingering_activity import end_lingering
from tests.fakes.hostile_guest import DATA, ENDED, FAILURE, RESULT, STDOUT, frame
from tests.stack.waiting import until

SANDBOXES, MIB = "/v1/sandboxes", 1024 * 1024


BROKEN = {
    "hangs up": b"",
    "half a header": b"\x05\x00",
    "half a frame": frame(RESULT, ENDED)[:-3],
    "unknown frame": frame(99, b"x"),
    "a frame of 4 GB": b"\x03\xff\xff\xff\xffx",
    "not JSON": frame(RESULT, b"\xff\xfe"),
    "a list": frame(RESULT, [1]),
    "deep JSON": frame(RESULT, b"[" * 100_000),
    "no exit code": frame(RESULT, {}),
    "a text as exit code": frame(RESULT, ENDED | {"exitCode": "0"}),
    "an enormous exit code": frame(RESULT, ENDED | {"exitCode": 10**30}),
    "data in an exec": frame(DATA, b"x") + frame(RESULT, ENDED),
    "http": b"HTTP/1.1 200 OK\r\n\r\n",
}


@pytest.fixture
def sandbox(edge, owner, guest):
    """A running sandbox whose agent is `guest`."""
    made = edge.api.post(SANDBOXES, json={}, headers=edge.key(owner)).json["id"]
    point_at(made, guest.server_address[1])
    return made


def point_at(sandbox, port):
    with connection():
        PortBinding.delete().where(PortBinding.sandbox_id == sandbox).execute()
        columns = {"status": "running", "task": None, "agent_port": port, "idle_at": now()}
        Sandbox.update(**columns).where(Sandbox.id == sandbox).execute()


def run(edge, owner, sandbox, **body):
    return edge.client().post(f"{SANDBOXES}/{sandbox}/exec", json={"cmd": "x"} | body,
                              headers=edge.key(owner))


@pytest.mark.parametrize("reply", BROKEN.values(), ids=BROKEN)
def test_a_guest_that_breaks_the_protocol_is_503(edge, owner, sandbox, guest, reply):
    guest.reply = reply
    answer = run(edge, owner, sandbox)
    assert answer.status_code == 503 and list(answer.json) == ["error"]
    path, headers = f"{SANDBOXES}/{sandbox}/files", edge.key(owner)
    read = edge.api.get(f"{path}?path=/x", headers=headers)
    write = edge.api.post(path, json=[{"path": "/x", "content": "YQ=="}], headers=headers)
    assert 500 < read.status_code <= 503 or read.status_code == 200
    assert 500 < write.status_code <= 503
    check_not_in_use(sandbox)


def check_not_in_use(sandbox):
    end_lingering()
    with connection():
        assert Activity.select().where(Activity.sandbox_id == sandbox).count() == 0


def test_commands_that_follow_each_other_closely_share_a_connection(edge, owner, sandbox, guest):
    guest.keeps, guest.reply = True, frame(RESULT, ENDED | {"kept": True})
    assert {run(edge, owner, sandbox).status_code for _ in range(5)} == {200}
    assert guest.asked == 5 and guest.connected < 5
    guest.reply = frame(STDOUT, b"x")[:-1] + frame(RESULT, ENDED)
    assert run(edge, owner, sandbox).status_code == 503
    guest.reply, before = frame(RESULT, ENDED), guest.connected
    assert run(edge, owner, sandbox).status_code == 200 and guest.connected == before + 1


def test_nobody_there_is_503(edge, owner, sandbox):
    point_at(sandbox, free_port(0))
    assert run(edge, owner, sandbox).status_code == 503


def test_more_output_than_the_cap_is_cut_and_marked(edge, owner, sandbox, guest):
    cut = frame(RESULT, ENDED | {"stdoutTruncated": True})
    guest.reply = frame(STDOUT, b"x" * MIB) * 8 + cut
    answer = run(edge, owner, sandbox).json
    assert len(answer["stdout"]) == 8 * MIB and answer["stdoutTruncated"] is True
    guest.reply = frame(STDOUT, b"x" * MIB) * 9 + cut  # our agent cuts it itself
    assert run(edge, owner, sandbox).status_code == 503


@pytest.mark.parametrize("payload", [b"", b"x"], ids=["empty", "one byte"])
@pytest.mark.parametrize("kind", [STDOUT, DATA])
def test_endless_small_frames_end_as_503(edge, owner, sandbox, guest, kind, payload):
    guest.for_ever = frame(kind, payload) * 10_000
    path, headers = f"{SANDBOXES}/{sandbox}/files?path=/x", edge.key(owner)
    answer = run(edge, owner, sandbox) if kind == STDOUT else edge.api.get(path, headers=headers)
    assert answer.status_code == 503 and list(answer.json) == ["error"]


def test_output_without_room_is_cut_and_bodies_are_503(edge, owner, sandbox, guest, monkeypatch):
    room = Places(3 * MIB, 2 * MIB)
    monkeypatch.setitem(edge.api.application.extensions, "svc-buffers", room)
    guest.reply = frame(STDOUT, b"x" * MIB) * 3 + frame(RESULT, ENDED)
    answer = run(edge, owner, sandbox).json
    assert len(answer["stdout"]) == MIB and answer["stdoutTruncated"] is True
    large = json.dumps([{"path": "/x", "content": "YQ==" * 200_000}])
    for content, status in ((large, 503), ("[]", 204)):
        answer = edge.api.post(f"{SANDBOXES}/{sandbox}/files", data=content, headers={
            **edge.key(owner), "Content-Type": "application/json"})
        assert answer.status_code == status, answer.text
    assert room.take("somebody", 2 * MIB), "everything was given back"


def test_a_batch_of_files_has_one_end_and_holds_its_sandbox_until_then(
        edge, owner, sandbox, guest, monkeypatch):
    monkeypatch.setattr(files, "WRITE_LIMIT_S", 1.0)
    guest.reply, guest.delay_s = frame(RESULT, {"sizeBytes": 1}), 0.3
    batch = [{"path": f"/{number}", "content": "YQ=="} for number in range(100)]
    answers = []

    def write():
        answers.append(edge.client().post(f"{SANDBOXES}/{sandbox}/files", json=batch,
                                          headers=edge.key(owner)))

    before, writing = now(), threading.Thread(target=write)
    writing.start()
    with connection():
        until(lambda: Activity.select().where(Activity.sandbox_id == sandbox).exists())
        held = Activity.get(Activity.sandbox_id == sandbox)
    writing.join()
    assert held.expires_at > before + timedelta(seconds=files.WRITE_LIMIT_S)
    assert answers[0].status_code == 503 and 1 < guest.asked < 10, answers[0].text
    assert f"the write of /{guest.asked - 1} " in answers[0].json["error"], "the first that was not"
    check_not_in_use(sandbox)


def test_a_path_that_is_not_utf_8_is_no_other_path(edge, owner, sandbox, guest):
    guest.reply = frame(DATA, b"x") + frame(RESULT, {"sizeBytes": 1})
    for escaped, status, asked in (("a%FFb", 400, 0), ("a%25FFb", 200, 1)):
        answer = edge.api.get(f"{SANDBOXES}/{sandbox}/files?path={escaped}",
                              headers=edge.key(owner))
        assert (answer.status_code, guest.asked) == (status, asked), answer.text


def test_a_file_larger_than_the_cap_is_broken_off(edge, owner, sandbox, guest):
    """Our agent refuses it before the first byte, which is 413."""
    guest.reply = frame(DATA, b"x" * MIB) * 65 + frame(RESULT, {"sizeBytes": 65 * MIB})
    with pytest.raises(BrokenPipeError):
        edge.api.get(f"{SANDBOXES}/{sandbox}/files?path=/x", headers=edge.key(owner))
    check_not_in_use(sandbox)


@pytest.mark.parametrize(("code", "of_file", "of_command"), [
    ("not_found", 404, 400), ("permission", 403, 503), ("too_large", 413, 503),
    ("not_a_file", 400, 503), ("bad_request", 400, 400), ("no_space", 409, 409),
    ("failed", 503, 503), ("made up", 503, 503), ("", 503, 503),
])
def test_what_the_guest_refuses(edge, owner, sandbox, guest, code, of_file, of_command):
    guest.reply = frame(FAILURE, {"code": code, "message": "because\0\x1b[31m"})
    check_refusals(edge, owner, sandbox, of_file, of_command)


def check_refusals(edge, owner, sandbox, of_file, of_command):
    files, headers = f"{SANDBOXES}/{sandbox}/files", edge.key(owner)
    for answer in (edge.api.get(f"{files}?path=/x", headers=headers),
                   edge.api.post(files, json=[{"path": "/x", "content": ""}], headers=headers),
                   upload(edge, owner, sandbox, b"x")):
        assert answer.status_code == of_file and list(answer.json) == ["error"]
        assert "/x" in answer.json["error"]
    assert run(edge, owner, sandbox).status_code == of_command


@pytest.mark.parametrize(("said", "of_file", "of_command"), [
    ("No space left on device", 409, 409), ("Disk quota exceeded", 409, 409),
    ("File name too long", 400, 400), ("Input/output error", 503, 503),
])
def test_what_an_agent_of_before_calls_failed(edge, owner, sandbox, guest, said, of_file,
                                              of_command):
    guest.reply = frame(FAILURE, {"code": "failed", "message": f"/x: {said}"})
    check_refusals(edge, owner, sandbox, of_file, of_command)


GOOD_DISK = {"totalBytes": 1000, "usedBytes": 400, "availableBytes": 600}


@pytest.mark.parametrize("reply", [
    *({name: value} for name in GOOD_DISK for value in (-1, 10**30, 2**60, "5", None, True, 1.5)),
    {"usedBytes": 1001},
    {"availableBytes": 1001},
    {"totalBytes": 0, "usedBytes": 0, "availableBytes": 0},
], ids=str)
def test_a_disk_that_cannot_be_is_503(edge, owner, sandbox, guest, reply):
    path, headers = f"{SANDBOXES}/{sandbox}/disk", edge.key(owner)
    guest.reply = frame(RESULT, GOOD_DISK)
    assert edge.api.get(path, headers=headers).json == GOOD_DISK
    guest.reply = frame(RESULT, GOOD_DISK | reply)
    for answer in (edge.api.get(path, headers=headers), edge.api.patch(path, headers=headers)):
        assert answer.status_code == 503 and list(answer.json) == ["error"]
    check_not_in_use(sandbox)


def test_a_guest_that_does_not_know_us_is_no_fault_of_the_caller(edge, owner, sandbox, guest):
    guest.reply = frame(FAILURE, {"code": "unauthorized", "message": "the token is not valid"})
    assert run(edge, owner, sandbox).status_code == 503
    read = edge.api.get(f"{SANDBOXES}/{sandbox}/files?path=/x", headers=edge.key(owner))
    assert read.status_code == 503


def test_a_silent_guest_costs_the_deadline_and_no_more(edge, owner, sandbox, guest, monkeypatch):
    monkeypatch.setitem(ExecCalls.exec.__kwdefaults__, "grace_s", 1.0)
    guest.silent_s = 60
    began = time.monotonic()
    assert run(edge, owner, sandbox, timeoutMs=100).status_code == 503
    assert time.monotonic() - began < 30


def test_a_sandbox_that_goes_to_sleep_is_noticed_while_its_guest_is_silent(
        edge, owner, sandbox, guest):
    guest.silent_s = 60
    ends_with_sleep(sandbox, guest, lambda: run(edge, owner, sandbox, timeoutMs=50_000))


def ends_with_sleep(sandbox, guest, call):
    """`call`, which waits for `guest`, ends once the sandbox is put to sleep."""
    answers = []
    thread = threading.Thread(target=lambda: answers.append(call()))
    thread.start()
    until(lambda: guest.asked)
    with connection():
        Sandbox.update(status="hibernated").where(Sandbox.id == sandbox).execute()
    thread.join(30)
    assert answers and answers[0].status_code == 409 and "put to sleep" in answers[0].json["error"]


def upload(edge, owner, sandbox, content):
    return edge.client().put(f"{SANDBOXES}/{sandbox}/uploads/a dir/x", data=content,
                             headers=edge.key(owner))


@pytest.mark.parametrize(
    "told", [{"sizeBytes": 5}, {"sizeBytes": 10**30}, {}, {"sizeBytes": 30_000_000}], ids=str)
def test_an_upload_counts_only_if_the_guest_took_all_of_it(edge, owner, sandbox, guest, told):
    guest.reply = frame(RESULT, told)
    for content in (bytes(30_000_000), b"abcd"):
        answer = upload(edge, owner, sandbox, content)
        assert answer.status_code == 503 and list(answer.json) == ["error"]
    check_not_in_use(sandbox)


def test_an_upload_ends_when_its_sandbox_goes_to_sleep(edge, owner, sandbox, guest):
    guest.silent_s = 60
    ends_with_sleep(sandbox, guest, lambda: upload(edge, owner, sandbox, bytes(30_000_000)))


@pytest.mark.slow
def test_no_connection_of_the_pool_is_held_while_a_command_runs(edge, owner, sandbox, guest):
    guest.silent_s = 3
    threads = [
        threading.Thread(target=run, args=(edge, owner, sandbox), kwargs={"timeoutMs": 100})
        for _ in range(40)
    ]
    for thread in threads:
        thread.start()
    time.sleep(0.5)
    assert {edge.api.get(SANDBOXES, headers=edge.key(owner)).status_code for _ in range(5)} == {200}
    for thread in threads:
        thread.join(30)
