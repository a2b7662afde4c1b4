"""kill -9 of the shell process, its worker, and of the API: what is open may end, the next
connection works."""
import contextlib
import os
import signal

import pytest

from tests.clients.shells import ShellClient, api_url_of, url_of
from tests.stack.memory import children
from tests.stack.waiting import until


def opens(url, alice):
    with contextlib.suppress(Exception), ShellClient(url, alice.key_headers) as shell:
        shell.type("pwd\n")
        shell.until("/home/user\r\n", within_s=20)
        return True
    return False


@pytest.mark.parametrize("victim", ["master", "worker"])
@pytest.mark.parametrize("address", [url_of, api_url_of])
def test_shells_open_again_after_the_restart(sim_stack, alice, sandbox, victim, address):
    url = address(sim_stack, sandbox)
    with ShellClient(url, alice.key_headers) as shell:
        shell.type("pwd\n")
        shell.until("/home/user\r\n")
        if victim == "master":
            sim_stack.kill("shell")
        else:
            for worker in children(sim_stack.supervisor.pid("shell")):
                os.kill(worker, signal.SIGKILL)
        assert shell.to_the_end() in (None, 1001)
    until(lambda: opens(url_of(sim_stack, sandbox), alice))
    # What the dead one held ends by itself; nothing keeps the next ones from opening.
    assert all(opens(url, alice) for _ in range(3))


def test_a_shell_of_the_api_outlives_the_api(sim_stack, alice, sandbox):
    with ShellClient(api_url_of(sim_stack, sandbox), alice.key_headers) as shell:
        shell.until("$ ")
        sim_stack.kill("api")
        shell.type("echo still here\n")
        shell.until("still here\r\nstill here\r\n")
    until(lambda: opens(api_url_of(sim_stack, sandbox), alice))
    until(alice.is_answered)
