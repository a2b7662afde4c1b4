"""A sandbox on an older, smaller disk than the platform's floor, grown while it runs: the image is
shrunk for it."""
import json
import shutil
import subprocess

import pytest

from bin.stack import running as stacks
from nodeworker.hypervisor.qemu.images.image_holders import unregister
from nodeworker.hypervisor.qemu.rundir import RunDir
from services.guest_calls.disk_growth import FLOOR_BYTES
from tests.host.qemu_img import opened, qemu_img
from tests.stack.personas import Persona
from tests.stack.times import BESIDE_GUESTS

SMALL_BYTES = 3 * 1024**3
# Goes on writing numbered lines into a file that it opened before; its id and the file must outlive
# everything.
WRITER = """
import os, time
with open("/home/user/lines", "w") as lines:
    number = 0
    while True:
        lines.write(f"{number}\\n")
        lines.flush()
        number += 1
        time.sleep(0.01)
"""
# Prints how many lines there are if they are 0, 1, 2... without a gap, and whether the writer
# lives.
COUNT = (
    'python3 -c \'lines = open("/home/user/lines").read().split("\\n")[:-1]; assert lines =='
    " [str(n) for n in range(len(lines))]; print(len(lines))' && kill -0 $(cat /run/writer)"
)
SUMS = "sha256sum /root/noise /home/user/noise"


def tool(*argv):
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{argv}: {done.stdout}{done.stderr}"


@pytest.fixture(scope="module")
def small_stack(clean_host):
    """A stack whose image has a root disk of 3 GiB; nothing is baked, so that the boot is a cold
    one."""
    settings = {"SVC_DRIVER": "qemu", "SVC_WARM_SPARES": "0", **BESIDE_GUESTS}
    # Without the bulk lane, whose bake of the shape would only slow the test down.
    processes = [name for name in stacks.supervise.procfile() if name != "node-bulk"]
    stack = stacks.private_stack("test-small", settings, processes=processes)
    try:
        stack.ensure_images()
        shrink_image(stack)
        stack.up()
        yield stack
    finally:
        stack.destroy()


def shrink_image(stack):
    original, small = stack.settings.image_dir, stack.site.data_dir / "images"
    image = (original / "images" / "current").resolve()
    copy = small / "images" / image.name
    copy.mkdir(parents=True)
    for path in image.iterdir():
        tool("cp", "--sparse=always", "--preserve=mode", str(path), str(copy))
    for name in ("accelerator.json", "tsc.json"):
        shutil.copy(original / name, small)
    (small / "images" / "current").symlink_to(image.name)
    disk = copy / "rootfs.raw"
    tool("e2fsck", "-fp", str(disk))
    tool("resize2fs", str(disk), f"{SMALL_BYTES // 1024}K")
    with disk.open("r+b") as file:
        file.truncate(SMALL_BYTES)
    unregister(original, stack.settings.node_dir)
    stack.site.values["SVC_IMAGE_DIR"] = str(small)


@pytest.fixture
def alice(small_stack):
    persona = Persona(small_stack, "ALICE")
    yield persona
    persona.close()


def shell(persona, sandbox, line):
    result = persona.exec(sandbox, "/bin/bash", "-c", line)
    assert result["exitCode"] == 0, result
    return result["stdout"]


def disk_bytes(persona, sandbox):
    """Size of the file system, as the API and the guest's own df tell it."""
    told = persona.get(f"/v1/sandboxes/{sandbox}/disk").json()["totalBytes"]
    assert int(shell(persona, sandbox, "df -B1 --output=size / | tail -1")) == told
    return told


def test_a_small_disk_grows_under_open_files_and_stays_grown_and_sound(
        small_stack, alice, tmp_path):
    sandbox = alice.create()["id"]
    assert disk_bytes(alice, sandbox) < SMALL_BYTES
    shell(
        alice, sandbox, f"cat > /root/writer.py <<'END'\n{WRITER}END\n"
        "python3 /root/writer.py > /dev/null 2>&1 & echo $! > /run/writer; "
        "head -c 12M /dev/urandom > /root/noise; head -c 9M /dev/urandom > /home/user/noise")
    sums, lines = shell(alice, sandbox, SUMS), int(shell(alice, sandbox, COUNT))

    grown = alice.request("PATCH", f"/v1/sandboxes/{sandbox}/disk")
    assert grown.status_code == 200 and grown.json()["totalBytes"] >= FLOOR_BYTES, grown.text
    assert disk_bytes(alice, sandbox) == grown.json()["totalBytes"]
    assert shell(alice, sandbox, f"echo 3 > /proc/sys/vm/drop_caches; {SUMS}") == sums
    lines = longer(alice, sandbox, lines)
    again = alice.request("PATCH", f"/v1/sandboxes/{sandbox}/disk", json={})
    assert again.status_code == 200 and again.json()["totalBytes"] == grown.json()["totalBytes"]
    # More than the old disk could hold, written where only the new one reaches.
    shell(
        alice, sandbox, "fallocate -l 12G /root/large && "
        "dd if=/home/user/noise of=/root/large bs=1M seek=12000 conv=notrunc status=none && sync")
    tail = "tail -c +12582912001 /root/large | head -c 9437184 | cmp - /home/user/noise"

    for action in ("hibernate", "wake"):
        assert alice.post(f"/v1/sandboxes/{sandbox}/{action}").status_code == 200
    fork = alice.post(f"/v1/sandboxes/{sandbox}/fork", json={}).json()["id"]
    alice.wait_for(fork, "running")
    for each in (sandbox, fork):
        assert disk_bytes(alice, each) == grown.json()["totalBytes"]
        assert shell(alice, each, f"echo 3 > /proc/sys/vm/drop_caches; {SUMS}; {tail}") == sums
        longer(alice, each, lines)
    check_file_system(small_stack, alice, fork, tmp_path / "disk.raw")


def longer(persona, sandbox, lines):
    """The writer goes on: waits until there are more than `lines` lines, and returns how many."""
    line = f"until test $(wc -l < /home/user/lines) -gt {lines}; do sleep 0.05; done; {COUNT}"
    return int(shell(persona, sandbox, line))


def check_file_system(stack, persona, sandbox, raw):
    """What lies on the disk of a sleeping sandbox whose file system came to rest is in order."""
    shell(persona, sandbox, "fsfreeze --freeze /")
    assert persona.post(f"/v1/sandboxes/{sandbox}/hibernate").status_code == 200
    chain = RunDir(stack.settings.node_dir / "sandboxes" / sandbox).find_record().machine.chain
    disk = opened(stack.settings.image_dir / "images" / chain[0].partition(":")[2] / "rootfs.raw",
                  image_format="raw")
    for reference in chain[1:]:
        layer = stack.settings.node_dir / "layers" / f"{reference.partition(':')[2]}.qcow2"
        qemu_img("check", str(layer))
        disk = opened(layer, disk)
    qemu_img("convert", "-O", "raw", f"json:{json.dumps(disk)}", str(raw))
    assert raw.stat().st_size >= FLOOR_BYTES
    tool("e2fsck", "-fn", str(raw))
