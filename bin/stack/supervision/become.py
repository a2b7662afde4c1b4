"""`python -m bin.stack.supervision.become FILE`: what a process of ours does before its program.

1. It reads its file, which only root can (bin/stack/supervision/start_files.py). 2. It lays out the
files it sees, in mounts of its own. 3. It becomes its account. 4. It takes its settings for its
environment and runs its program: a Python module or a script of the virtual environment in this
same process, anything else by the shell.

The plug-in `preloading` calls `run` in a process that has loaded the program's modules already.
"""
import atexit
import importlib.metadata
import os
import runpy
import shlex
import string
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import setproctitle

from bin.stack.site import ROOT
from bin.stack.supervision import drop_privileges, start_files

# Words of these alone are for a shell.
_PUNCTUATION = "();<>|&"


def run(path: Path) -> NoReturn:
    """Become the process of a start file, and end with its program."""
    status = 1
    try:
        _run(start_files.read(path))
        status = 0
    except SystemExit as end:
        status = _status_of(end)
    except BaseException:
        traceback.print_exc()
    _end(status)


def _run(start: start_files.Start) -> None:
    if start.view:
        drop_privileges.own_mounts()
        subprocess.run(["/bin/sh", "-euc", "\n".join(start.view)], check=True, env=start.environ)
    os.chdir(ROOT)
    drop_privileges.become(start.account, start.capabilities)
    os.environ.clear()
    os.environ.update(start.environ)
    lexer = shlex.shlex(start.command.removeprefix("exec "), posix=True,
                        punctuation_chars=_PUNCTUATION)
    lexer.whitespace_split = True
    words = list(lexer)
    if any(set(word) <= set(_PUNCTUATION) for word in words):
        os.execv("/bin/sh", ["sh", "-c", start.command])
    words = [string.Template(word).substitute(os.environ) for word in words]
    if words[0] == "env":
        while "=" in words[1]:
            name, _, value = words.pop(1).partition("=")
            os.environ[name] = value
        del words[0]
    program = _program(words)
    setproctitle.setproctitle(shlex.join(words))
    program()


def _program(words: list[str]) -> Callable[[], object]:
    """What `words` name, with the arguments for it in place."""
    if words[:2] == ["python", "-m"]:
        name = words[2]
        # Its first line in `ps` is that of the module, which is loaded already, but not run.
        sys.modules.pop(name, None)
        sys.argv = [name, *words[3:]]
        return lambda: runpy.run_module(name, run_name="__main__", alter_sys=True)
    sys.argv = [str(Path(sys.prefix) / "bin" / words[0]), *words[1:]]
    (script,) = importlib.metadata.entry_points(group="console_scripts", name=words[0])
    return lambda: sys.exit(script.load()())


def _status_of(end: SystemExit) -> int:
    if end.code is None or isinstance(end.code, int):
        return end.code or 0
    print(end.code, file=sys.stderr)
    return 1


def _end(status: int) -> NoReturn:
    """As Python ends a program, without a return to whom this process was forked from."""
    try:
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(status)


if __name__ == "__main__":
    run(Path(sys.argv[1]))
