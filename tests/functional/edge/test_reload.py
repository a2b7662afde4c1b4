"""The edge takes up changes and comes back from a kill without losing what clients have open, and
leaves nothing behind."""
import contextlib
import os
import signal
import time
from pathlib import Path

import httpx
import pytest

from bin.console import Advice
from bin.stack import leftovers
from config.nginx.workers import workers_of
from tests.clients.load import Load
from tests.clients.shells import ShellClient
from tests.stack.previews import Served
from tests.stack.waiting import until
from tests.tls.clients import client, connect, context_of

MIB = 1024**2
RELOAD = "python -m config.nginx.reload"


def workers(stack):
    """The children of its master, none while there is no master."""
    try:
        return {int(entry.name) for entry in workers_of(stack.supervisor.pid("edge"))}
    except OSError:
        return set()


class Requests(Load):
    """Requests one after another, each on a connection of its own, from several threads."""

    def __init__(self, stack):
        super().__init__(*[self._run] * 3)
        self._stack, self.statuses = stack, []

    def _run(self):
        while not self.ends.is_set():
            try:
                with client(self._stack) as http:
                    self.statuses.append(http.get("/health").status_code)
            except httpx.HTTPError as error:
                self.statuses.append(repr(error))


@pytest.mark.slow
def test_a_reload_drops_nothing(sim_stack, alice, sandbox):
    head = (f"PUT /v1/sandboxes/{sandbox}/uploads/slow HTTP/1.1\r\nHost: localhost\r\n"
            f"Authorization: Bearer {alice.api_key}\r\nContent-Length: {4 * MIB}\r\n\r\n")
    with Requests(sim_stack) as load, connect(sim_stack, "localhost") as upload:
        upload.sendall(head.encode() + bytes(MIB))
        first = workers(sim_stack)
        for _ in range(3):
            sim_stack.run(RELOAD)
            upload.sendall(bytes(MIB))
        assert b" 201 " in upload.recv(65536).split(b"\r\n")[0]
        until(lambda: not first & workers(sim_stack), 30)
    assert len(load.statuses) > 10 and set(load.statuses) == {200}


def wait_for_one(events):
    """Take events until one had to be waited for: all that came before have been taken."""
    took_s = 0.0
    while took_s < 0.05:
        began = time.monotonic()
        assert next(events).startswith("data: event-")
        took_s = time.monotonic() - began


def test_what_is_open_goes_on_through_reloads(sim_stack, alice, sandbox):
    """Old workers keep it, for an hour at most (worker_shutdown_timeout)."""
    first, served, port = workers(sim_stack), Served(), sim_stack.settings.edge_port
    preview = served.preview(sim_stack, alice)
    tls = {"context": context_of(sim_stack), "server_hostname": "shell.localhost"}
    with (preview.client() as http, http.stream("GET", "/events?n=1000") as stream,
          contextlib.closing(preview.socket()) as link,
          ShellClient(f"wss://127.0.0.1:{port}/{sandbox}", alice.key_headers, sslopt=tls,
                      host=f"shell.localhost:{port}") as shell):
        events = filter(None, stream.iter_lines())
        for number in range(4):
            link.send(f"socket {number}")
            assert link.recv() == f"socket {number}"
            shell.type(f"echo shell {number}\n")
            shell.until(f"shell {number}\r\nshell {number}\r\n")
            wait_for_one(events)
            if number < 3:
                sim_stack.run(RELOAD)
        assert first & workers(sim_stack)
    preview.delete()
    served.close()
    until(lambda: not first & workers(sim_stack) and len(workers(sim_stack)) <= len(first), 30)


@pytest.mark.slow
def test_a_configuration_that_nginx_refuses_is_told_and_changes_nothing(sim_stack):
    before = workers(sim_stack)
    broken = {**sim_stack.env, "SVC_TLS_CERT": "/nonexistent", "SVC_TLS_KEY": "/nonexistent"}
    with pytest.raises(Advice, match="goes on with the old one"):
        sim_stack.run(RELOAD, env=broken)
    assert workers(sim_stack) == before
    with client(sim_stack) as http:
        assert http.get("/health").status_code == 200
    sim_stack.run(RELOAD)


def test_after_a_kill_the_next_request_works_and_old_workers_end(sim_stack):
    """Workers of a killed master hold the port, and would for ever."""
    orphans = workers(sim_stack)
    sim_stack.kill("edge")
    until(lambda: answers(sim_stack), 20)
    until(lambda: workers(sim_stack) - orphans)
    until(lambda: not [pid for pid in orphans if Path(f"/proc/{pid}").exists()], 20)
    assert answers(sim_stack)


def answers(stack):
    try:
        with client(stack) as http:
            return http.get("/health").status_code == 200
    except httpx.HTTPError:
        return False


def test_what_a_killed_supervisor_leaves_of_it_is_found(sim_stack):
    """Its processes write over their environment, by which others are found."""
    found = leftovers.processes_of(sim_stack.site.data_dir)
    assert {sim_stack.supervisor.pid("edge"), *workers(sim_stack)} <= set(found)


def test_a_worker_that_is_killed_is_replaced(sim_stack):
    worker = workers(sim_stack).pop()
    os.kill(worker, signal.SIGKILL)
    until(lambda: worker not in workers(sim_stack) and len(workers(sim_stack)) > 0)
    assert answers(sim_stack)
