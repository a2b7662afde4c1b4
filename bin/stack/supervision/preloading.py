"""A plug-in of supervisord: processes of ours are forks of a supervisord that has loaded our code
and the libraries, once. They share its memory, and are there after some 50 ms instead of a second.

1. `load`, a remote call, loads what processes of ours import, before the first of them starts. It
   reads no setting: supervisord has none. 2. A program whose command is `become FILE` is run in
   the fork itself. 3. When a file of what was loaded has changed since, the command is started as
   any other: it loads what is there now. `make down` and `make up` load it anew.
"""
import gc
import importlib
import os
import pkgutil
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import setproctitle

from bin.stack.supervision import become, merge_pages
from objects import store

COMMAND = ("-m", "bin.stack.supervision.become")
_OURS = ("app", "config", "guest.client", "models", "nodeworker", "objects", "services", "tasks")
# Commands of operators, migrations, and modules that read settings when they are imported or
# import one that does.
_LEFT_OUT = ("app.operator", "config.flowerconfig", "config.gunicorn", "config.nginx",
             "models.migrations", "nodeworker.commands", "nodeworker.jobs", "nodeworker.worker",
             "tasks.celery_app", "tasks.control", "tasks.webhooks")
# Of libraries, what ours import only when they run.
_LIBRARIES = ("celery.app.amqp", "celery.app.control", "celery.app.events", "celery.app.log",
              "celery.apps.beat", "celery.apps.worker", "celery.backends.redis",
              "celery.concurrency.prefork", "celery.concurrency.thread", "celery.events.state",
              "celery.fixups.django", "celery.loaders.app", "celery.worker.consumer",
              "celery.worker.autoscale", "celery.worker.components",
              "celery.worker.consumer.delayed_delivery", "celery.worker.strategy",
              "encodings.idna", "gunicorn.app.wsgiapp", "gunicorn.glogging", "httpcore",
              "kombu.transport.redis")


class Preloading:
    """The plug-in. `load` is a remote call of supervisord; the rest happens in its children."""

    def __init__(self, options: Any) -> None:
        self._exec = options.execve
        options.execve = self._become_or_exec
        self._paths = ""
        self._versions = b""

    def load(self) -> bool:
        """Load everything; True if there was something to do. Takes about a second."""
        if self._paths:
            return False
        load()
        # From here on it knows where the first command line was, and how long.
        setproctitle.setproctitle(setproctitle.getproctitle())
        self._paths = "\n".join(path for module in list(sys.modules.values())
                                if (path := getattr(module, "__file__", None)))
        self._versions = _versions(self._paths)
        return True

    def _become_or_exec(self, program: str, words: list[str], environ: dict[str, str]) -> None:
        """In the child: what supervisord would start as a program."""
        if (tuple(words[-3:-1]) == COMMAND and self._paths
                and _versions(self._paths) == self._versions):
            _forget_the_parent()
            become.run(Path(words[-1]))
        else:
            self._exec(program, words, environ)


def load() -> None:
    """Import what processes of ours import. Code is no garbage: nobody looks for some in it."""
    gc.disable()
    store.preload()  # first: its description takes more while it is read
    # The command line of httpx: it imports what formats and colours its output.
    sys.modules["httpx._main"] = None  # type: ignore[assignment]  # the import system's "none"
    for name in (*_modules(), *_LIBRARIES):
        importlib.import_module(name)
    # The first such question walks all classes; each fork would ask it, for its environment.
    isinstance({}, Mapping)
    gc.collect()
    gc.freeze()
    gc.enable()
    merge_pages.mark()


def _modules() -> list[str]:
    found = []
    for name in _OURS:
        package = importlib.import_module(name)
        # A package that is left out would be imported to look for what it holds.
        pending = [(package.__path__, f"{name}.")]
        while pending:
            paths, prefix = pending.pop()
            for _, module, is_package in pkgutil.iter_modules(paths, prefix):
                if module not in _LEFT_OUT and not module.endswith(".__main__"):
                    found.append(module)
                    if is_package:
                        pending.append((importlib.import_module(module).__path__, f"{module}."))
    return found


def _versions(paths: str) -> bytes:
    """Time and size of each of the files, whose paths stand one in a line.

    One string, not an object for each of 2,000 files: those lie among other objects everywhere, and
    a fork that looks at them counts references in their pages, which copies 7 MB.
    """
    versions = bytearray()
    start = 0
    while start < len(paths):
        end = paths.find("\n", start)
        end = len(paths) if end < 0 else end
        try:
            found = os.stat(paths[start:end])
            versions += b"%d %d " % (found.st_mtime_ns, found.st_size)
        except OSError:
            versions += b"gone "
        start = end + 1
    return bytes(versions)


def _forget_the_parent() -> None:
    """Ctrl-C and standard streams as a Python that has just started has them. Signals are a
    program's since the fork (`early_signals.py`)."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.stdin = open(0, closefd=False)
    sys.stdout = open(1, "w", buffering=1, closefd=False)
    sys.stderr = open(2, "w", buffering=1, errors="backslashreplace", closefd=False)


def install(supervisord: Any, **_: str) -> Preloading:
    """For `supervisor.rpcinterface_factory`."""
    return Preloading(supervisord.options)
