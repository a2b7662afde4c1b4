"""A process with more than 1023 open files, where select gives up, still hears guests and rows."""
import contextlib
import os
import resource
import socket
import threading

import pytest

from guest.client.agent_client import AgentClient
from guest.client.errors import AgentError


@pytest.fixture
def many_open_files():
    """Every file opened from here on has a number above 1023."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 4096), hard))
    with contextlib.ExitStack() as stack:
        while True:
            descriptor = os.open(os.devnull, os.O_RDONLY)
            stack.callback(os.close, descriptor)
            if descriptor > 1100:
                break
        yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_guest_that_hangs_up_is_an_agent_error(many_open_files):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        def hang_up():
            link, _ = listener.accept()
            # A reset while the request is being sent makes the client look whether an answer waits.
            link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            link.close()

        guest = threading.Thread(target=hang_up)
        guest.start()
        client = AgentClient("127.0.0.1", listener.getsockname()[1], "token")
        with pytest.raises(AgentError):
            client.write_file("/tmp/x", iter([b"x" * 65536] * 400), size_bytes=65536 * 400)
        guest.join()
