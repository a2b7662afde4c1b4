"""Machines with the agent presets: their image, what is in it, and that plain ones have nothing of
it."""
import json
import os
import shutil
import time

import pytest

from guest.image.published import point
from nodeworker.hypervisor.driver import DriverError, VmState
from nodeworker.hypervisor.qemu.images.prune import prune
from tests.host.driver_lab import SHAPE, Lab

ALL = "opencode,pi,codex,claude,lfg"


@pytest.fixture(scope="module")
def with_presets(qemu_lab):
    """The same node with presets; their image stays in the image directory for the next run."""
    lab = Lab({**qemu_lab.environ, "SVC_PRESETS": ALL}, qemu_lab.numbers)
    lab.driver.bake(SHAPE, presets=True)
    return lab


@pytest.fixture
def presets(with_presets):
    yield with_presets
    with_presets.clean()


def create(lab, **changes):
    spec = lab.spec(presets=True, **changes)
    return spec, lab.driver.create(spec)


def unneeded(image_dir):
    """The images that a clean-up would remove, once no other worker is building one."""
    deadline = time.monotonic() + 240
    while True:
        try:
            return {each.path.name for each in prune(image_dir, dry_run=True)}
        except DriverError:
            assert time.monotonic() < deadline
            time.sleep(1)


def image_below(lab, sandbox_id):
    return lab.driver.host.rundir(sandbox_id).chain()[0]


def test_a_guest_with_the_presets_has_the_agents_that_the_node_says(presets):
    facts = presets.driver.presets_facts()
    assert facts.ready and facts.failed == {}, facts
    spec, vm = create(presets)
    assert not vm.cold, vm.cold_reason
    record = json.loads(presets.shell(spec, "cat /opt/svc/presets/presets.json"))["presets"]
    agents = {slug: each for slug, each in record.items() if each["bins"]}
    assert set(agents) == {"opencode", "pi", "codex", "claude"}
    for slug, each in agents.items():
        assert each["version"] == facts.versions[slug]
        for program in each["bins"].values():
            presets.shell(spec, f"test -s /opt/svc/presets/{program}")
    assert presets.shell(spec, "stat -c '%U %a' /opt/svc/presets /opt/svc/presets/presets.json"
                         ).split() == ["root", "755", "root", "644"]
    assert presets.shell(spec, "command -v pi codex claude opencode node || true") == ""


def test_a_plain_machine_has_the_plain_image_and_nothing_of_the_presets(presets, real):
    spec = real.create()
    with_facts, _ = create(presets)
    assert image_below(presets, spec.sandbox_id) == f"image:{real.driver.host.image.key}"
    assert image_below(presets, with_facts.sandbox_id) != image_below(presets, spec.sandbox_id)
    assert real.driver.has_warm_image(SHAPE) and not real.driver.has_warm_image(SHAPE, presets=True)
    assert "no agent presets" in real.driver.presets_facts().failed["pi"]
    assert real.agent(spec).exec(["ls", "/opt/svc/presets"]).exit_code != 0
    assert real.driver.host.warm_image_dir(SHAPE) == presets.driver.host.warm_image_dir(SHAPE)


def test_machines_live_on_through_an_update_of_the_presets(presets):
    """Sleep, wake, fork and cold boot on the image a machine was made from; prune knows of it."""
    spec, _ = create(presets)
    presets.agent(spec).write_file("/root/mine", b"kept")
    presets.shell(spec, "sync")
    presets.driver.hibernate(spec.sandbox_id)
    images = presets.settings.image_dir / "images"
    old = os.readlink(images / "presets")
    updated = f"{old}-updated"
    try:
        shutil.copytree(images / old, images / updated, copy_function=os.link)
        facts = json.loads((images / updated / "image.json").read_text())
        (images / updated / "image.json").unlink()
        (images / updated / "image.json").write_text(json.dumps(facts | {"key": updated}))
        point(images / "presets", updated)
        later, vm = create(presets)
        assert vm.cold and image_below(presets, later.sandbox_id) == f"image:{updated}"
        assert not presets.driver.wake(spec).cold
        presets.driver.snapshot(spec.sandbox_id, "snapofpresets")
        fork = presets.create("snapofpresets")
        presets.kill_machine(spec.sandbox_id)
        assert presets.driver.inspect(spec.sandbox_id) is VmState.DISK_ONLY
        assert presets.driver.wake(spec).cold
        for each in (spec, fork):
            assert presets.agent(each).read_file("/root/mine", 100) == b"kept"
            assert image_below(presets, each.sandbox_id) == f"image:{old}"
            assert presets.shell(each, "ls /opt/svc/presets/codex").split()
        assert not {old, updated} & unneeded(presets.settings.image_dir)
    finally:
        point(images / "presets", old)
        presets.clean()
        shutil.rmtree(images / updated)
