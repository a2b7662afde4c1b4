"""A simulated guest keeps files as a real one does."""
import threading
from collections.abc import Iterator

import pytest

from guest.client.agent_client import AgentClient
from guest.client.errors import AgentError, AgentRefused
from nodeworker.hypervisor.simulated.agent import AgentServer
from nodeworker.hypervisor.simulated.guest import Guest


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
