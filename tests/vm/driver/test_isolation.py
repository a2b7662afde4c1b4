"""What a guest and its QEMU process may reach: the public internet and their own files, nothing
else."""
import contextlib
import os
import socket
import subprocess
import threading
import time
from pathlib import Path

import pytest

from guest.agent.protocol import AGENT_PORT
from nodeworker.disks import qcow2
from nodeworker.network import addresses, namespaces, nft
from tests.host.driver_checks import check_disk_limits
from tests.host.guest_network import PUBLIC, connects, own_addresses, reached, server_at


@pytest.fixture
def host_listener():
    """Something on the host that listens on every address, as a careless service would."""
    with socket.create_server(("0.0.0.0", 0), backlog=16) as listener:
        yield listener.getsockname()[1]


def process_of(lab, spec):
    record = lab.driver.host.rundir(spec.sandbox_id).find_record()
    return Path("/proc") / str(record.pid), record


def ready_namespaces(host):
    """Namespaces of the slots that wait to be claimed; the pool may be making another one."""
    return {host.network.slots.slot(number).namespace for number in host.network.slots.ready()}


def test_a_guest_reaches_the_public_internet_and_its_answers_come_back(real, internet):
    assert connects(real, real.create(), PUBLIC, internet)


def test_a_guest_reaches_no_address_of_the_host(real, host_listener):
    spec = real.create()
    own = own_addresses() - {"127.0.0.1"}
    for address in own:
        try:
            socket.create_connection((address, host_listener), timeout=30).close()
        except OSError:
            assert address not in own_addresses(), "it was another stack's, which has ended"
    targets = [(address, host_listener) for address in (*own, addresses.GATEWAY_ADDRESS)]
    assert reached(real, spec, targets) == []


def test_a_guest_reaches_no_other_guest_by_any_road(real):
    spec, other = real.create(), real.create()
    _, record = process_of(real, other)
    other_address = real.driver.host.network.slots.slot(record.slot).address
    assert real.agent(other).ping()
    roads = [(other_address, AGENT_PORT), *((own, other.agent_port) for own in own_addresses())]
    assert reached(real, spec, roads) == []


def test_packets_to_private_and_metadata_addresses_never_leave_the_host(real, internet):
    """Each address is routed to a live listener, so that only the policy stands in between."""
    with contextlib.ExitStack() as servers:
        targets = [
            (address, servers.enter_context(server_at(real.settings.net_prefix, address)))
            for address in ("169.254.169.254", "10.0.0.1", "172.16.0.1", "192.168.1.1",
                            "100.100.100.200")
        ]
        assert reached(real, real.create(), targets) == []


def test_forged_source_addresses_are_dropped(real, internet):
    spec, other = real.create(), real.create()
    _, record = process_of(real, other)
    neighbour = real.driver.host.network.slots.slot(record.slot).address
    forged = [neighbour, "8.8.8.8", "172.30.0.9"]
    for source in forged:
        real.shell(spec, f"ip addr add {source}/32 dev eth0")
    assert reached(real, spec, [(PUBLIC, internet)], forged) == []
    assert connects(real, spec, PUBLIC, internet)


def test_host_ports_reach_the_guest_and_only_the_ports_asked_for(real):
    spec = real.create()
    real.agent(spec).exec(["python3", "-m", "http.server", "8000"], detached=True, cwd="/etc")
    assert real.agent(spec).wait_port(8000, timeout_s=30)
    with socket.create_connection(("127.0.0.1", spec.forwards[0].host_port),
                                  timeout=10) as connection:
        connection.sendall(b"GET /hostname HTTP/1.0\r\n\r\n")
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    assert spec.sandbox_id.encode() in answer
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", spec.forwards[0].host_port + 1), timeout=5)


def test_qemu_runs_without_any_privilege_in_a_place_of_its_own(real):
    spec = real.create()
    process, record = process_of(real, spec)
    status = dict(
        line.split(":\t", 1)
        for line in (process / "status").read_text().splitlines()
        if ":\t" in line)
    uid = str(real.settings.vm_uid_base + record.slot)
    assert set(status["Uid"].split()) == set(status["Gid"].split()) == {uid}
    assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")
    assert int(status["CapEff"], 16) == int(status["CapPrm"], 16) == int(status["CapBnd"], 16) == 0
    namespace = namespaces.NETNS_DIR / real.driver.host.network.slots.slot(record.slot).namespace
    assert os.stat(process / "ns" / "net").st_ino == namespace.stat().st_ino
    assert os.getsid(record.pid) == record.pid
    assert record.pid in real.driver.host.cgroups.pids(spec.sandbox_id)
    groups = (process / "cgroup").read_text()
    assert f"/{real.settings.net_prefix}/{spec.sandbox_id}" in groups


def test_qemu_sees_no_data_of_the_host_and_no_process_of_another(real):
    process, record = process_of(real, real.create())
    for kind in ("mnt", "pid", "ipc", "uts"):
        assert os.stat(process / "ns" / kind).st_ino != os.stat(f"/proc/self/ns/{kind}").st_ino
    for path in ("home", "root", "run", "tmp", "var", "dev/shm"):
        assert os.listdir(process / "root" / path) == [], path
    mounts = (process / "mountinfo").read_text().splitlines()
    assert any(" /proc " in line and "hidepid=" in line for line in mounts)
    limits = (process / "limits").read_text()
    (line,) = [line for line in limits.splitlines() if line.startswith("Max file size")]
    assert line.split()[3] == line.split()[4] == str(qcow2.most_bytes(record.machine.disk_bytes))


def test_a_guest_reads_and_writes_its_disk_no_faster_than_is_allowed(real):
    check_disk_limits(real, real.create())


def test_qemu_has_no_file_of_another_sandbox_open(real):
    spec, _ = real.create(), real.create()
    process, record = process_of(real, spec)
    layers = {layer.partition(":")[2] for layer in record.machine.chain}
    for link in (process / "fd").iterdir():
        target = os.readlink(link)
        if target.startswith(str(real.settings.node_dir)):
            path = Path(target)
            assert path.parent.name == spec.sandbox_id or path.stem in layers, target


def test_nothing_is_left_on_the_host_after_destroy(real):
    first, second = real.create(), real.create()
    real.driver.snapshot(first.sandbox_id, "snap")
    real.driver.hibernate(second.sandbox_id)
    real.clean()
    host = real.driver.host
    assert host.network.slots.owners() == {} and host.network.forwards.current() == {}
    assert host.cgroups.names() == set()
    deadline = time.monotonic() + 30
    while not set(namespaces.list_namespaces(real.settings.net_prefix)) <= ready_namespaces(host):
        assert time.monotonic(
        ) < deadline, "a namespace is left that is neither ready nor being made"
        time.sleep(0.05)
    assert (
        [path for path in host.sandboxes.iterdir()]
        == [path for path in host.snapshots.iterdir()]
        == []
    )
    assert not list((real.settings.node_dir / "layers").glob("*.qcow2"))
    processes = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True,
                               check=True).stdout
    assert f"-name {real.settings.net_prefix}/" not in processes


def test_a_lost_packet_policy_is_loaded_again(real):
    spec = real.create()
    nft.apply(f"delete table inet {real.settings.net_prefix}")
    real.driver.reclaim()
    assert real.agent(spec).ping().adopted == spec.sandbox_id
    nft.apply(f"delete table inet {real.settings.net_prefix}")
    real.driver.wake(spec)
    assert real.agent(spec).ping().adopted == spec.sandbox_id


def test_reclaim_removes_strays_and_leaves_live_machines_alone(real):
    spec = real.create()
    host = real.driver.host
    stray = host.network.slots.claim("nobody")
    host.network.forward(stray, {real.settings.host_ports[1]: 80}, fresh=True)
    (host.snapshots / "half.tmp").mkdir()
    (host.sandboxes / "half").mkdir()
    real.driver.reclaim()
    assert set(host.network.slots.owners()) == {spec.sandbox_id}
    assert real.settings.host_ports[1] not in host.network.forwards.current()
    assert not (host.snapshots / "half.tmp").exists() and not (host.sandboxes / "half").exists()
    assert real.agent(spec).ping().adopted == spec.sandbox_id


def test_machines_in_parallel_share_nothing_and_all_come_up(real):
    specs, failures = [real.spec() for _ in range(4)], []

    def attempt(spec):
        try:
            real.driver.create(spec)
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=attempt, args=(spec,)) for spec in specs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert {real.agent(spec).ping().adopted
            for spec in specs} == {spec.sandbox_id
                                   for spec in specs}
