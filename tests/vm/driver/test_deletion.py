"""Deleting, with real machines: what is left reads the same bytes as before, and no layer of the
disk is left over."""
import os
import threading
import time

from nodeworker.hypervisor.driver import VmState
from nodeworker.hypervisor.qemu.disk.layer_references import references

FILES = ("/root/first", "/root/second", "/home/user/third")


def layers(real):
    return set(real.driver.host.layers.list_paths())


def named(real):
    return {each for each in references(real.settings.node_dir) if each.startswith("layer:")}


def write(real, spec, path):
    """Random bytes, and their digest as the guest sees it."""
    real.agent(spec).write_file(path, os.urandom(2 << 20))
    real.shell(spec, "sync")
    return digest(real, spec, path)


def digest(real, spec, path):
    # From the disk, not from the memory that was cloned with it.
    return real.shell(spec, f"echo 3 > /proc/sys/vm/drop_caches; sha256sum < {path}").split()[0]


def test_forks_keep_every_byte_when_source_and_snapshots_are_deleted(real):
    source = real.create()
    sums = {}
    for number, path in enumerate(FILES):
        sums[path] = write(real, source, path)
        real.driver.snapshot(source.sandbox_id, f"snap{number}")
    forks = [real.create(f"snap{number}") for number in range(len(FILES))]
    used = real.driver.disk_use()
    assert used.sandboxes[source.sandbox_id] > max(
        used.sandboxes[fork.sandbox_id] for fork in forks)
    real.driver.destroy(source.sandbox_id)
    real.driver.delete_snapshot("snap1")
    assert layers(real) == named(real)
    for number, fork in enumerate(forks):
        real.driver.delete_snapshot(f"snap{number}")
        real.driver.hibernate(fork.sandbox_id)
        real.driver.wake(fork)
        assert layers(real) == named(real)
        assert {path: digest(real, fork, path) for path in FILES[:number + 1]} == \
            {path: sums[path] for path in FILES[:number + 1]}
    for fork in forks:
        real.driver.destroy(fork.sandbox_id)
    assert layers(real) == set()


def test_a_snapshot_deleted_while_it_is_forked_gives_a_whole_fork_or_none(real, tmp_path):
    source = real.create()
    digest_before = write(real, source, FILES[0])
    real.driver.snapshot(source.sandbox_id, "snap")
    fault = tmp_path / "fault"
    fault.write_text("create.recorded sleep:2")
    spec, codes = real.spec("snap"), []
    worker = threading.Thread(
        target=lambda: codes.append(real.in_child("create", spec, fault_file=fault)))
    worker.start()
    while fault.exists() and worker.is_alive():
        time.sleep(0.05)
    real.driver.delete_snapshot("snap")
    worker.join()
    if codes == [0]:
        assert digest(real, spec, FILES[0]) == digest_before
    else:
        assert real.driver.inspect(spec.sandbox_id) is None
    assert real.driver.inspect(source.sandbox_id) is VmState.RUNNING
    assert digest(real, source, FILES[0]) == digest_before
    assert layers(real) == named(real)


def test_layers_of_a_flattened_chain_go_once_nothing_needs_them(real):
    source = real.create()
    sums = {}
    for number in range(4):  # one more than SVC_CHAIN_DEPTH_LIMIT of this node
        sums[f"/root/{number}"] = write(real, source, f"/root/{number}")
        real.driver.snapshot(source.sandbox_id, f"snap{number}")
    for number in range(4):
        real.driver.delete_snapshot(f"snap{number}")
    for number in range(5):
        # A snapshot of a chain that is too long begins the copying, sleep ends it and shortens the
        # record if it was done by then.
        real.shell(source, f"echo {number} > /root/again; sync")
        real.driver.snapshot(source.sandbox_id, f"again{number}")
        real.driver.delete_snapshot(f"again{number}")
        real.shell(source, "sleep 2")
        real.driver.hibernate(source.sandbox_id)
        real.driver.wake(source)
        real.driver.collect_garbage()
        if len(layers(real)) == 1:
            break
    assert layers(real) == named(real) and len(layers(real)) == 1
    assert {path: digest(real, source, path) for path in sums} == sums
