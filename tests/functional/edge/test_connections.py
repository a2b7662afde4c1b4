"""The packet filter for hosts of the edge, in a network namespace of its own: how many connections
one address may have open, whatever comes over them."""
import subprocess
import sys

import pytest

from bin.systemd import export

# Connects from each address until it is refused; one connection that ends makes room for one.
PROGRAM = """
import contextlib, socket, sys
servers = {"127.0.0.1": socket.AF_INET, "::1": socket.AF_INET6}
listeners = {at: socket.create_server((at, 443), family=kind) for at, kind in servers.items()}
def fill(source, links):
    server = "::1" if ":" in source else "127.0.0.1"
    with contextlib.suppress(ConnectionError):
        while len(links) < 20:
            client = socket.create_connection((server, 443), 5, (source, 0))
            links.append((client, listeners[server].accept()[0]))
    return len(links)
kept = []
for source in sys.argv[1:]:
    links = []
    kept.append(links)
    full = fill(source, links)
    for end in links.pop():
        end.close()
    print(source, full, fill(source, links))
"""


@pytest.fixture
def rules(tmp_path):
    export(tmp_path)
    text = (tmp_path / "svc-edge.nft").read_text().replace("over 2000", "over 3")
    path = tmp_path / "narrow.nft"
    path.write_text(text)
    return path


def test_an_address_has_so_many_connections_open(rules):
    sources = ["127.0.0.1", "127.0.0.2", "::1"]
    script = 'ip link set lo up && nft -f "$1" && nft -f "$1" && shift && exec "$@"'
    shown = subprocess.run(["unshare", "--net", "sh", "-c", script, "sh", rules, sys.executable,
                            "-c", PROGRAM, *sources], text=True, capture_output=True, check=True)
    assert shown.stdout.splitlines() == [f"{source} 3 3" for source in sources]
