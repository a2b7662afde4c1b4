"""A public server that needs no internet, and whether a guest gets through to an address."""
import fcntl
import json
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from nodeworker.network import namespaces

# Stands for any public server; lives in a namespace of its own.
PUBLIC = "9.9.9.53"
# The host's address towards it.
HOST_SIDE = "192.0.2.250"
# Prints which of the targets it gets through to; all are tried at once.
CONNECT = """
import json, socket, sys, threading
targets, through = json.loads(sys.argv[1]), []
def attempt(target):
    address, port, source = target
    guest = socket.socket()
    guest.settimeout(2)
    try:
        guest.bind((source, 0))
        guest.connect((address, port))
    except OSError:
        return
    through.append(target)
threads = [threading.Thread(target=attempt, args=(target,)) for target in targets]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(json.dumps(through))
"""


def namespace_of(prefix):
    return f"{prefix}-0internet"


@contextmanager
def public_server(prefix) -> Iterator[int]:
    """A listener at `PUBLIC` in the block; gives its port."""
    with public_listener(namespace_of(prefix), PUBLIC, HOST_SIDE) as listener:
        yield listener.getsockname()[1]


@contextmanager
def public_listener(name, address, host_side) -> Iterator[socket.socket]:
    """A listening socket at `address` in the namespace `name`, which is made for the block;
    `host_side` is this host's address towards it. Another session waits for the end of the block,
    because a host has one route to an address."""
    link = f"{name[:12]}p"
    with (Path(tempfile.gettempdir()) / f"svc-test-{address}").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with _listener(name, link, address, host_side) as listener:
            yield listener


@contextmanager
def _listener(name, link, address, host_side) -> Iterator[socket.socket]:
    namespaces.create_namespace(name)
    try:
        for line in (f"link add {link} type veth peer name inside netns {name}",
                     f"link set {link} up", f"addr add {host_side}/32 dev {link}",
                     f"route add {address}/32 dev {link}",
                     f"-n {name} addr add {address}/32 dev inside",
                     f"-n {name} link set inside up",
                     f"-n {name} route add {host_side}/32 dev inside"):
            subprocess.run(["ip", *line.split()], check=True)
        with namespaces.in_namespace(
                name, lambda: socket.create_server((address, 0), backlog=16)) as listener:
            yield listener
    finally:
        # At once: the kernel takes its time for the links of a namespace.
        subprocess.run(["ip", "link", "del", link], check=False, capture_output=True)
        namespaces.delete_namespace(name)


@contextmanager
def server_at(prefix, address) -> Iterator[int]:
    """A listener at another address beside the public server's, to which this host has a route."""
    name = namespace_of(prefix)
    subprocess.run(["ip", "-n", name, "addr", "add", f"{address}/32", "dev", "inside"], check=True)
    subprocess.run(["ip", "route", "add", f"{address}/32", "dev", f"{name[:12]}p"], check=True)
    listener = namespaces.in_namespace(name, lambda: socket.create_server((address, 0)))
    with listener:
        port = listener.getsockname()[1]
        socket.create_connection((address, port), timeout=2).close()
        yield port


def reached(lab, spec, targets, sources=("0.0.0.0",)):
    """Those of the targets, pairs of address and port, to which the guest of `spec` opens a
    connection, with the source that it did so from."""
    wanted = [(*target, source) for target in targets for source in sources]
    result = lab.agent(spec).exec(["python3", "-c", CONNECT, json.dumps(wanted)])
    assert result.exit_code == 0, result
    return [tuple(target) for target in json.loads(result.stdout)]


def connects(lab, spec, address, port):
    """True if the guest of `spec` opens a connection, at the third try at the latest."""
    return any(reached(lab, spec, [(address, port)]) for _ in range(3))


def own_addresses():
    """Every IPv4 address of this host."""
    listing = json.loads(
        subprocess.run(["ip", "-j", "-4", "addr"], capture_output=True, check=True).stdout)
    return {entry["local"] for link in listing for entry in link["addr_info"]}
