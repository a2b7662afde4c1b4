"""A simulated guest keeps files as a real one does, and says what was built in it."""
import threading
from collections.abc import Iterator

import pytest

from guest.client.agent_client import AgentClient
from guest.client.errors import AgentError, AgentRefused
from nodeworker.deploys import building
from nodeworker.hypervisor.simulated.agent import AgentServer
from nodeworker.hypervisor.simulated.guest import Guest
from services.deploys.projects.manifest import read_project
from services.deploys.projects.static_or_process import Built


@pytest.fixture
def simulated() -> Iterator[AgentClient]:
    """A client of a simulated guest, which must keep the same promises for plain files."""
    server = AgentServer("127.0.0.1", 0, Guest("token"))
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05},
                     daemon=True).start()
    yield AgentClient("127.0.0.1", server.server_address[1], "token")
    server.shutdown()
    server.server_close()


def test_a_simulated_guest_archives_and_unpacks(simulated: AgentClient) -> None:
    simulated.write_file("/home/user/a/ü\nx", b"one")
    simulated.write_file("/home/user/other", b"two")
    archive = b"".join(simulated.archive("a", 10))
    simulated.unarchive("/srv/copy", [archive[:100], archive[100:]], 10)
    assert simulated.read_file("/srv/copy/ü\nx", 100) == b"one"
    with pytest.raises(AgentError):
        simulated.read_file("/srv/copy/other", 100)
    for broken in (archive[:512], b"x" * 5000 + bytes(1024), b""):
        with pytest.raises(AgentRefused):
            simulated.unarchive("/srv/copy", [broken], 10)
    assert simulated.grow_disk() == simulated.disk()


@pytest.mark.parametrize("live_database", [None, "kept.db"])
def test_a_simulated_guest_says_what_a_build_left(
        simulated: AgentClient, live_database: str | None) -> None:
    static = read_project(None, None)
    simulated.write_file("/home/user/dist/index.html", b"")
    assert building.judge(simulated, "/home/user", static) == Built("dist", None, None, 0)
    served = read_project('{"start": "serve 3000"}', None)
    simulated.write_file("/home/user/kept.db", b"SQLite format 3\0")
    assert building.judge(simulated, "/home/user", served, live_database) \
        == Built(None, "serve 3000", "kept.db", 0)
