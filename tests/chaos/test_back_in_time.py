"""kill -9 of nginx, API, shell or gateway under load, with all processes of it: how long the next
request takes, beside what a bare program needs to start that imports the same.

On a quiet machine it is answered within a second (docs/decisions/0025 has the figures); what a busy
one takes, it takes of both.
"""
import contextlib
import os
import secrets
import signal
import subprocess
import sys
import time

import httpx
import pytest

from bin.stack.free_ports import free_port
from bin.stack.site import ROOT
from tests.clients.load import Load
from tests.clients.shells import ShellClient
from tests.stack.memory import children
from tests.stack.previews import PreviewLoad, Served
from tests.stack.waiting import listens, until
from tests.tls.clients import client, context_of

ROUNDS, TIMES_BARE = 2, 3
GUNICORN = "gunicorn.app.wsgiapp,app.http.server.worker"
IMPORTS = {"edge": "config.nginx.__main__", "api": f"{GUNICORN},app.api.factory",
           "shell": f"{GUNICORN},app.shell.worker,app.shell.factory",
           "gateway": "app.gateway.__main__"}
BARE = """
import importlib, socket, sys
for name in sys.argv[1].split(","):
    importlib.import_module(name)
listener = socket.create_server(("127.0.0.1", int(sys.argv[2])))
listener.accept()
"""


class Requests(Load):
    """Requests for the API one after another, from two threads."""

    def __init__(self, stack):
        super().__init__(*[lambda: self._run(stack)] * 2)

    def _run(self, stack):
        while not self.ends.wait(0.005):
            with contextlib.suppress(httpx.HTTPError), client(stack) as http:
                for _ in range(50):
                    http.get("/health")


def ask_api(stack, alice, sandbox):
    with client(stack) as http:
        assert http.get("/health").status_code == 200


def ask_edge(stack, alice, sandbox):
    """Nobody waits for nginx but its clients."""
    while True:
        with contextlib.suppress(httpx.TransportError):
            return ask_api(stack, alice, sandbox)
        time.sleep(0.01)


def ask_gateway(stack, alice, sandbox):
    """For a host that no worker of nginx has an answer for."""
    letters = "abcdefghijklmnopqrstuvwxyz234567"
    label = "".join(letters[byte % 32] for byte in secrets.token_bytes(26))
    with client(stack, f"{label}-3000.{stack.settings.preview_domain}") as http:
        assert http.get("/").status_code == 404


def ask_shell(stack, alice, sandbox):
    port = stack.settings.edge_port
    tls = {"context": context_of(stack), "server_hostname": "shell.localhost"}
    with ShellClient(f"wss://127.0.0.1:{port}/{sandbox}", alice.key_headers, sslopt=tls,
                     host=f"shell.localhost:{port}") as shell:
        shell.until("$ ")


ASK = {"edge": ask_edge, "api": ask_api, "shell": ask_shell, "gateway": ask_gateway}


def bare_start_s(stack, name):
    """Seconds until a program listens that only imports what the process does."""
    port = free_port(0)
    began = time.monotonic()
    with subprocess.Popen([sys.executable, "-c", BARE, IMPORTS[name], str(port)], cwd=ROOT,
                          env={**stack.env, "PYTHONPATH": str(ROOT)}):
        until(lambda: listens(port), 60)
        return time.monotonic() - began


def kill_all(stack, name):
    """Its main process first, which would otherwise replace the others."""
    main = stack.supervisor.pid(name)
    for pid in (main, *children(main)):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return main


@pytest.mark.alone
def test_the_next_request_takes_little_longer_than_a_bare_start(sim_stack, alice, sandbox):
    served = Served()
    preview = served.preview(sim_stack, alice)
    bare, took = ({name: [] for name in ASK} for _ in range(2))
    with Requests(sim_stack), PreviewLoad(preview, gets=2, posts=0):
        for _ in range(ROUNDS):
            for name, ask in ASK.items():
                ask(sim_stack, alice, sandbox)
                bare[name].append(bare_start_s(sim_stack, name))
                killed, began = kill_all(sim_stack, name), time.monotonic()
                ask(sim_stack, alice, sandbox)
                took[name].append(time.monotonic() - began)
                until(lambda name=name, killed=killed:
                      sim_stack.supervisor.pid(name) not in (0, killed))
    for name in ASK:
        print(f"{name}: answered after " + ", ".join(f"{each:.2f}" for each in took[name])
              + " s, a bare start took " + ", ".join(f"{each:.2f}" for each in bare[name]))
    assert all(min(took[name]) < TIMES_BARE * min(bare[name]) for name in ASK)
    until(alice.is_answered)
    preview.delete()
    served.close()
