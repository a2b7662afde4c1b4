"""The two bridges of users, `shell.mjs` with each runtime, through the edge's TLS to a shell in a
real agent: keys, size, output, a sleep in the middle."""
import pytest

from bin.stack.site import ROOT
from tests.host.javascript import RUNTIMES
from tests.host.program_on_terminal import ProgramOnTerminal


@pytest.fixture(params=["svc-shell", *RUNTIMES])
def program(request, sim_stack, alice, box):
    """The bridge on a terminal of its own, with alice's key, at the shell host."""
    if request.param == "svc-shell":
        command = [ROOT / "bin/svc-shell", box]
    elif runtime := RUNTIMES[request.param]():
        command = [runtime, ROOT / "sdk/shell/shell.mjs", box]
    else:
        pytest.skip("Bun is taken out of the guest image, and there is none yet")
    environ = {name: sim_stack.site.values[name] for name in ("SVC_SHELL_URL", "SVC_CA_FILE")}
    key = alice.key_headers["Authorization"].removeprefix("Bearer ")
    with ProgramOnTerminal(command, environ | {"SVC_API_KEY": key}, cols=100, rows=30) as running:
        running.read_until(r"\$ ")
        yield running


def test_keys_size_output_and_the_exit_code_pass(program):
    # Without a trap of its own for ctrl-C, bash goes on where `sleep` ended by itself just then.
    program.type(b"stty size; bash -c 'trap \"stty size\" WINCH; trap exit INT; echo re\"\"ady;"
                 b" while :; do sleep 0.1; done'\r")
    program.read_until(r"30 100\s+ready")
    program.resize(132, 50)
    program.read_until("50 132")
    program.type(b"\x03")
    program.read_until(r"\$ ")
    program.type(b"stty -echo -opost; head -c 3000000 /dev/zero | tr '\\0' z; echo E\"\"ND\r")
    assert program.read_until("END").count(b"z") >= 3_000_000
    program.type("echo grüße-$((1+1)); exit 7\r".encode())
    program.read_until("grüße-2")
    assert program.exit_code() == 7


def test_after_a_sleep_a_key_wakes_the_sandbox(program, alice, box):
    program.type(b"echo first\r")
    program.read_until(r"[\r\n]first")
    assert alice.post(f"/v1/sandboxes/{box}/hibernate").status_code == 200
    program.read_until("put to sleep.*any key opens another shell")
    assert alice.get(f"/v1/sandboxes/{box}").json()["status"] == "hibernated"
    program.type(b"k")
    program.read_until(r"\$ ")
    program.type(b"echo second\r")  # to the simulated guest, which knows little more
    program.read_until(r"[\r\n]second")
    program.type(b"exit 3\r")
    assert program.exit_code() == 3
