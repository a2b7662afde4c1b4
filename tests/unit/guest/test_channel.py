"""The connection as the agent's child has it: waiting for a peer, whatever the descriptor's
number."""
import fcntl
import resource
import socket

import pytest

from guest.agent.channel import Channel, PeerGone

SELECT_MOST = 1023  # the highest descriptor that select() takes


@pytest.fixture(params=[0, SELECT_MOST + 1], ids=["low", "high"])
def channel(request):
    """A channel on a descriptor that is at least so high, and its peer."""
    before, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(before, SELECT_MOST + 100), hard))
    ours, peer = socket.socketpair()
    with ours, peer:
        number = fcntl.fcntl(ours.fileno(), fcntl.F_DUPFD_CLOEXEC, request.param)
        with socket.socket(fileno=number) as moved:
            ours.close()
            yield Channel(moved, b""), peer
    resource.setrlimit(resource.RLIMIT_NOFILE, (before, hard))


def test_time_passes_while_the_peer_is_there(channel):
    waiting, _ = channel
    waiting.wait_unless_gone(0.01)


@pytest.mark.parametrize("goes", [
    lambda peer: peer.close(), lambda peer: peer.shutdown(socket.SHUT_WR),
    lambda peer: peer.sendall(b"?")], ids=["closes", "says no more", "says something"])
def test_a_peer_that_goes_is_noticed_before_the_time_is_over(channel, goes):
    waiting, peer = channel
    goes(peer)
    with pytest.raises(PeerGone):
        waiting.wait_unless_gone(60)
