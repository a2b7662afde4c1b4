"""Project directories of real guests, out to the store and into a fork: by checksum, in number, in
size, through a kill -9, and in little memory."""
import base64
import hashlib
import json
import os
import re
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from objects.store import ObjectStore
from tests.stack.memory import GrowthWatch

GROWTH_LIMIT_BYTES, AGENT_LIMIT_KB = 48 * 1024 * 1024, 60_000
# More than twice what a process may grow by.
BLOCK_BYTES, BLOCKS = 8 * 1024 * 1024, 16
# No archive passes identity, of which each sign-in takes 64 MiB, by intent; the store is not ours.
LEFT_OUT = re.compile("svc-identity|rclone")
# Makes every kind of thing that a directory can hold; names are bytes.
MAKE = r"""
import os, socket
os.chdir(b'/home/user')
def put(name, content=b'', mode=0o644):
    with open(name, 'wb') as out: out.write(content)
    os.chmod(name, mode)
os.makedirs('deep/' * 60 + 'end')
os.mkdir('empty'); os.chmod('empty', 0o1750); os.chown('empty', 1234, 4321)
put('with spaces  and\ttabs'); put('new\nline', b'1'); put(b'not \xff utf-8', b'2')
put('sn\u00f6w \u2603', b'3')
put('-rf'); put('x' * 255, b'4'); put("quote'\"$`\\", b'5'); put('.hidden', b'6')
put('program', b'#!/bin/sh\n', 0o4755); put('secret', b'7', 0o600); os.chown('secret', 0, 0)
put('one', b'linked' * 1000); os.link('one', 'two'); os.link('one', 'empty/three')
os.symlink('one', 'to one'); os.symlink('/nowhere/at all', 'dangling'); os.symlink('..', 'up')
os.symlink('loop', 'loop')
os.lchown('dangling', 1000, 1000)
with open('sparse', 'wb') as out:
    out.truncate(3 << 30); out.seek(1 << 30); out.write(b'middle' * 1000)
    out.seek((3 << 30) - 5); out.write(b'right')
os.mkfifo('pipe'); os.setxattr('one', 'user.note', b'kept')
put('random', os.urandom(5_000_000)); os.utime('random', ns=(10**18 + 7, 10**18 + 123_456_789))
os.unlink('.bashrc')
"""
# One line for each thing, sparse files by their blocks; what was linked together stays together.
LIST = r"""
import hashlib, json, os, stat
def digest(path):
    seen = hashlib.sha256()
    with open(path, 'rb') as source:
        while piece := source.read(1 << 20): seen.update(piece)
    return seen.hexdigest()
lines, inodes = [], {}
for folder, names, files in os.walk(b'/home/user'):
    for name in names + files + ([b'.'] if folder == b'/home/user' else []):
        path = os.path.join(folder, name)
        kept = os.lstat(path)
        regular = stat.S_ISREG(kept.st_mode)
        twins = inodes.setdefault(kept.st_ino, []) if regular else []
        twins.append(path)
        lines.append([repr(path), kept.st_mode, kept.st_uid, kept.st_gid, kept.st_mtime_ns,
                      kept.st_size if regular else 0, kept.st_nlink if regular else 0,
                      digest(path) if regular and kept.st_blocks * 512 >= kept.st_size else '',
                      repr(os.readlink(path)) if stat.S_ISLNK(kept.st_mode) else '',
                      sorted(os.listxattr(path, follow_symlinks=False))])
with open(b'/home/user/sparse', 'rb') as source:
    source.seek(1 << 30); middle = source.read(6000)
    source.seek((3 << 30) - 5); right = source.read()
groups = sorted(sorted(map(repr, one)) for one in inodes.values() if len(one) > 1)
print(json.dumps({'lines': sorted(lines), 'groups': groups,
                  'blocks': os.stat(b'/home/user/sparse').st_blocks,
                  'ends': [repr(middle), repr(right)]}))
"""


@pytest.fixture
def sandboxes(vm_alice):
    """Makes running sandboxes, new or from a snapshot, and removes them afterwards."""
    made = []

    def start(snapshot_id=None):
        body = {} if snapshot_id is None else {"snapshotId": snapshot_id}
        answer = vm_alice.post("/v1/sandboxes/fork" if body else "/v1/sandboxes", json=body)
        assert answer.status_code == 201, answer.text
        made.append(answer.json()["id"])
        vm_alice.wait_for(made[-1], "running", timeout_s=400)
        return made[-1]

    yield start
    for sandbox_id in made:
        assert vm_alice.delete(f"/v1/sandboxes/{sandbox_id}").status_code == 200


def run(persona, sandbox_id, cmd, *args):
    options = {"args": list(args)} if args else {}
    answer = persona.post(f"/v1/sandboxes/{sandbox_id}/exec",
                          json={"cmd": cmd, "timeoutMs": 300_000, **options}, timeout=320)
    assert answer.status_code == 200, answer.text
    assert answer.json()["exitCode"] == 0, answer.json()
    return answer.json()["stdout"]


def md5(content):
    return hashlib.md5(content, usedforsecurity=False).hexdigest()


def archive(persona, sandbox_id):
    """A snapshot of the project; asked for again under its key should this host be slow, as clients
    are told to."""
    for _ in range(2):
        answer = persona.post(f"/v1/sandboxes/{sandbox_id}/filesystem-snapshot",
                              json={"idempotencyKey": "one"}, timeout=400)
        if "still being taken" not in answer.text:
            break
    assert answer.status_code == 201, answer.text
    return answer.json()


def test_everything_a_directory_can_hold_comes_back(vm_alice, sandboxes):
    source = sandboxes()
    run(vm_alice, source, "python3", "-c", MAKE)
    before = json.loads(run(vm_alice, source, "python3", "-c", LIST))
    taken = archive(vm_alice, source)
    assert taken["sizeBytes"] < 100_000_000, "the holes are not in it"
    copy = sandboxes(taken["id"])
    after = json.loads(run(vm_alice, copy, "python3", "-c", LIST))
    assert after["lines"] == before["lines"]
    assert (after["groups"], after["ends"]) == (before["groups"], before["ends"])
    assert after["blocks"] * 512 < 1_000_000, "it is as sparse as it was"


@pytest.mark.timeout(900)
def test_thousands_of_small_files(vm_alice, sandboxes):
    source = sandboxes()
    run(vm_alice, source,
        "mkdir files; seq 2000 | split --lines=1 --suffix-length=4 --numeric-suffixes - files/f")
    taken = archive(vm_alice, source)
    vm_alice.delete(f"/v1/sandboxes/{source}")
    copy = sandboxes(taken["id"])
    names = "".join(f"f{number:04}\n" for number in range(2_000))
    contents = "".join(f"{number}\n" for number in range(1, 2_001))
    assert run(vm_alice, copy, "ls files | md5sum").split()[0] == md5(names.encode())
    every = "find files -type f -print0 | sort --zero-terminated | xargs --null cat | md5sum"
    assert run(vm_alice, copy, every).split()[0] == md5(contents.encode())


@pytest.mark.timeout(900)
def test_a_large_directory_through_a_kill_and_in_little_memory(vm_alice, vm_stack, sandboxes):
    source, block = sandboxes(), os.urandom(BLOCK_BYTES)
    item = {"path": "/home/user/block", "content": base64.b64encode(block).decode()}
    assert vm_alice.post(f"/v1/sandboxes/{source}/files", json=[item]).status_code == 204
    run(vm_alice, source, f"for i in $(seq {BLOCKS}); do cat block; done > big; rm block")
    with GrowthWatch(vm_stack.site.data_dir) as watch:
        carry_out_and_back(vm_alice, vm_stack, sandboxes, source, block)
    growths = sorted((grown, watch.commands[pid]) for pid, grown in watch.most_bytes.items()
                     if not LEFT_OUT.search(watch.commands[pid]))
    assert any("archive" in command for _, command in growths)
    assert growths[-1][0] < GROWTH_LIMIT_BYTES, growths[-5:]


def carry_out_and_back(vm_alice, vm_stack, sandboxes, source, block):
    """The directory of `source` to the store, through a kill, and into a fork."""
    with ThreadPoolExecutor(1) as pool:
        pending = pool.submit(archive, vm_alice, source)
        wait_for_part(vm_stack)
        vm_stack.kill("node-archive")
        taken = pending.result()
    assert (
        taken["sizeBytes"] > BLOCKS * BLOCK_BYTES
        and taken["tarballSizeBytes"] > BLOCKS * BLOCK_BYTES
    )
    assert agent_peak_kb(vm_alice, source) < AGENT_LIMIT_KB
    vm_alice.delete(f"/v1/sandboxes/{source}")
    copy = sandboxes(taken["id"])
    whole = hashlib.md5(usedforsecurity=False)
    for _ in range(BLOCKS):
        whole.update(block)
    assert run(vm_alice, copy, "md5sum big").split()[0] == whole.hexdigest()
    assert agent_peak_kb(vm_alice, copy) < AGENT_LIMIT_KB


def wait_for_part(stack):
    """Return once the store has a good part of an archive, and not yet all of it."""
    store, deadline = ObjectStore(stack.settings), time.monotonic() + 60
    while not store.list_uploads("snapshots/"):
        assert time.monotonic() < deadline
        time.sleep(0.1)


def agent_peak_kb(persona, sandbox_id):
    """VmHWM of the guest's agent."""
    line = "grep VmHWM /proc/$(systemctl show --property MainPID --value svc-agent)/status"
    return int(run(persona, sandbox_id, line).split()[1])
