"""Runs, in a guest that becomes a warm image, the agents that Bun has to translate, once: what it
keeps of that on the disk makes their first start in a sandbox as fast as the later ones.

Only Bun's own cache is kept. An agent's state, which may have an identity in it, is not: its home
is a directory that goes with the command.
"""
import logging
import shlex
from typing import Any

from guest.client.agent_client import AgentClient
from guest.client.errors import AgentError
from guest.presets import GUEST_DIR

_log = logging.getLogger(__name__)
_BUN = "/usr/local/bin/bun"
# Where Bun looks for it when `user` runs it.
_CACHE = "/home/user/.bun/install/cache/@t@"
_LIMIT_MS = 180_000
_RUN = """
home=$(mktemp -d) && cd "$home" && ln -s {bun} node && chown -R user: "$home" || exit
setpriv --reuid=user --regid=user --init-groups env -i HOME="$home" PATH="$home:/usr/bin:/bin" \
    BUN_RUNTIME_TRANSPILER_CACHE_PATH={cache} {program} --version
code=$?; rm -rf "$home"; exit $code
"""
# What activates one is translated too, by Python.
_COMPILE = f"exec python3 -m py_compile {GUEST_DIR}/activate.py"

# What they used and freed is neither zero nor of use to a clone: the kernel zeroes it for whoever
# asks for it next. 0x8000 is MAP_POPULATE.
_ZERO = """
import mmap
kilobytes = next(int(line.split()[1]) for line in open("/proc/meminfo") if "MemFree" in line)
size = min(kilobytes * 3 // 4 * 1024, 512 * 1024 ** 2)
mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x8000).close()
"""


def run_once(agent: AgentClient, presets: dict[str, Any]) -> None:
    """Run the programs of `presets`, entries of presets.json, that need `node`, compile what
    activates them, and zero the memory that this leaves. What fails is left for whoever asks for
    it."""
    lines = [
        _RUN.format(bun=_BUN, cache=_CACHE, program=shlex.quote(f"{GUEST_DIR}/{path}"))
        for preset in presets.values() if preset["state"] == "ready" and preset["needsNode"]
        for path in preset["bins"].values()
    ]
    for line in [*lines, _COMPILE, f"exec python3 -c {shlex.quote(_ZERO)}"]:
        try:
            done = agent.exec(shell=line, cwd="/", timeout_ms=_LIMIT_MS)
        except AgentError as error:
            _log.warning("%s was not run: %s", line, error)
            continue
        if done.exit_code:
            _log.warning("%s ended with %s: %s", line, done.exit_code, done.stderr[-200:])
