"""A real server of lfg, with shell scripts in the place of the agents."""
from collections.abc import Iterator

import pytest

from tests.host.javascript import bun
from tests.host.lfg_server import LfgServer

FLOODED_BYTES = 20_000_000
# Echoes lines, and tells its size when it starts and whenever that changes.
AGENT = """exec python3 -u -c '
import os, signal, sys
def size():
    return "{0.lines} {0.columns}".format(os.get_terminal_size())
signal.signal(signal.SIGWINCH, lambda *_: os.write(1, f"{size()}\\n".encode()))
print("claude in", os.getcwd(), "at", size())
for line in sys.stdin:
    print("you said", line, end="")
'"""
PROGRAMS = {
    "claude": AGENT,
    # A screen of its own with a mouse, then more output than is kept.
    "pi": r"printf '\e[?1049h\e[?1002;1006h\e[?25l'; sleep 0.05;"
          r" seq -f 'line %07.0f of many' 40000; read; printf '\e[?25h'; read",
    "codex": f"yes 0123456789abcde | head -c {FLOODED_BYTES}; echo THE-END; cat",
    "opencode": "stty raw -echo; echo ready; sleep 1000",
}


@pytest.fixture
def lfg(tmp_path) -> Iterator[LfgServer]:
    if not bun():
        pytest.skip("Bun is taken out of the guest image, and there is none yet")
    server = LfgServer(tmp_path, PROGRAMS)
    yield server
    assert server.process.poll() is None, "it ended"
    server.close()
