"""Keeps the processes of the Procfile alive with supervisord: starts it, and controls it over a
unix socket. Its configuration is in `supervisord_conf.py`; each process is started from a file of
its own (`start_files.py`).

honcho ends every process as soon as one of them ends; a crashed worker has to come back by itself
instead. See docs/decisions/0002-supervisor.md.
"""
import contextlib
import os
import re
import resource
import select
import signal
import subprocess
import time
import xmlrpc.client
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

from supervisor.xmlrpc import SupervisorTransport

from bin.console import Advice
from bin.stack.site import ROOT, Site
from bin.stack.supervision import start_files
from bin.stack.supervision.supervisord_conf import TABLE, configuration, log_of, socket_of
from config.processes import PROCESSES

RELEASE = "release"
_FAULT_NOT_RUNNING, _FAULT_ALREADY_STARTED, _FAULT_UNKNOWN = 70, 60, 10
# The plug-in that a supervisord of an earlier version has not.
_FAULT_UNKNOWN_METHOD = 1
# From the moment it is told to end, whatever it is asked.
_FAULT_ENDING = 6
_MOMENT_S = 0.5


def procfile() -> dict[str, str]:
    """Process name -> shell line, in the order of the Procfile, without the release step."""
    lines = re.findall(r"^([\w-]+): *(.+)$", (ROOT / "Procfile").read_text(), re.MULTILINE)
    return {name: f"exec {command}" for name, command in lines if name != RELEASE}


def release_command() -> str:
    """The command that has to have succeeded before any process starts: the migrations."""
    return str(re.findall(rf"^{RELEASE}: *(.+)$", (ROOT / "Procfile").read_text(), re.MULTILINE)[0])


class Supervisor:
    """The supervisord of one site. Every call may be repeated; names are those of the Procfile and
    the servers."""

    def __init__(self, site: Site, programs: dict[str, str]) -> None:
        """`programs` are lines of the shell by name."""
        self.site, self.programs = site, programs

    def _call(self, method: str, *arguments: Any, of: str = "supervisor") -> Any:
        """One remote call, of supervisord or a plug-in, on a connection of its own: the transport
        survives neither an error nor a second thread."""
        transport = SupervisorTransport(None, None, f"unix://{socket_of(self.site)}")
        try:
            proxy = xmlrpc.client.ServerProxy("http://127.0.0.1", transport=transport)
            return getattr(getattr(proxy, of), method)(*arguments)
        finally:
            if transport.connection is not None:
                transport.connection.close()

    def running(self) -> bool:
        """True if supervisord answers, and is not about to end."""
        try:
            return bool(self._call("getState")["statename"] == "RUNNING")
        except (OSError, xmlrpc.client.ProtocolError):
            return False
        except xmlrpc.client.Fault as fault:
            if fault.faultCode != _FAULT_ENDING:
                raise
            return False

    def launch(self) -> None:
        """Start supervisord, with no program running yet, or make a running one read the
        configuration, which stops what is another there. Processes get today's settings when they
        start next."""
        path = self.site.data_dir / "supervisord.conf"
        (self.site.data_dir / "log").mkdir(mode=0o700, exist_ok=True)
        for name, line in self.programs.items():
            start_files.write(self.site, name, TABLE.get(name), line)
        path.write_text(configuration(self.site, self.programs))
        if not self.running() or self._knows_settings():
            self.shutdown()
        if self.running():
            self._reread()
            return
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard if 0 < hard < 65536 else 65536, hard))
        command = [str(ROOT / ".venv/bin/supervisord"), "--configuration", str(path)]
        environ = {**self.site.supervisor_environ, "PYTHONPATH": str(ROOT)}
        result = subprocess.run(command, env=environ, cwd=ROOT, text=True,
                                stdin=subprocess.DEVNULL, capture_output=True, check=False)
        if result.returncode:
            raise Advice(
                f"supervisord did not start: {result.stderr.strip() or result.stdout.strip()}")
        deadline = time.monotonic() + 20
        while not self.running():
            if time.monotonic() > deadline:
                log = log_of(self.site, "supervisord")
                raise Advice(f"supervisord does not answer; see {log}.")
            time.sleep(0.05)

    def _knows_settings(self) -> bool:
        """True for a supervisord of an earlier version, which handed everything to everybody."""
        environ = Path(f"/proc/{self._call('getPID')}/environ").read_bytes()
        return b"\0SVC_DATABASE_URL=" in b"\0" + environ

    def _reread(self) -> None:
        """supervisord compares with what it knows, whatever the file was before: one that was
        broken off on the way is gone on with."""
        for kind, names in zip(("added", "changed", "removed"),
                               self._ask("reloadConfig")[0], strict=True):
            for name in names:
                if kind != "added":
                    self.stop(name)
                    self._ask("removeProcessGroup", name)
                if kind != "removed":
                    self._ask("addProcessGroup", name)

    def start(self, *names: str) -> None:
        """Start processes; one that runs already is left alone. Whether they live is asked
        afterwards, by what they are for."""
        if any(name in PROCESSES for name in names):
            self._ask("load", of="preloading", tolerated=_FAULT_UNKNOWN_METHOD)
        for name in names:
            self._ask("startProcess", name, False, tolerated=_FAULT_ALREADY_STARTED)

    def stop(self, *names: str) -> None:
        """Stop processes for good, politely first; one that is stopped already is left alone.

        One that has just died is about to be started again, and cannot be stopped until it is: then
        it is asked again.
        """
        deadline = time.monotonic() + 40
        while time.monotonic() < deadline:
            left = [name for name in names if self.state(name) not in ("STOPPED", "FATAL")]
            if not left:
                return
            for name in left:
                if self.state(name) != "STOPPING":
                    self._ask("stopProcess", name, False, tolerated=_FAULT_NOT_RUNNING)
            time.sleep(0.05)

    def _ask(self, method: str, *arguments: Any, tolerated: int | None = None,
             of: str = "supervisor") -> Any:
        """As `_call`; a refusal is an Advice, or None if it is `tolerated`."""
        try:
            return self._call(method, *arguments, of=of)
        except xmlrpc.client.Fault as fault:
            if fault.faultCode != tolerated:
                raise Advice(f"supervisor: {fault.faultString}") from fault
            return None

    def info(self, name: str) -> dict[str, Any]:
        """What supervisor knows of one process: statename, pid, description... A process that the
        running supervisord does not know, because it is of an earlier version, is STOPPED."""
        try:
            return dict(self._call("getProcessInfo", name))
        except xmlrpc.client.Fault as fault:
            if fault.faultCode != _FAULT_UNKNOWN:
                raise
            return {"statename": "STOPPED", "pid": 0,
                    "description": "new in this version; `make restart` starts it"}

    def state(self, name: str) -> str:
        """RUNNING, STARTING, BACKOFF (it crashes again and again), STOPPING, STOPPED, EXITED or
        FATAL."""
        return str(self.info(name)["statename"])

    def list_restless(self, names: Collection[str]) -> list[str]:
        """Those that do not run, or that have ended within a moment: what ends again and again,
        and what has only just begun."""
        before = self._pids_of_running()
        if missing := [name for name in names if name not in before]:
            return missing
        time.sleep(_MOMENT_S)
        after = self._pids_of_running()
        return [name for name in names if after.get(name) != before[name]]

    def _pids_of_running(self) -> dict[str, int]:
        return {each["name"]: each["pid"] for each in self._ask("getAllProcessInfo")
                if each["statename"] == "RUNNING"}

    def pid(self, name: str) -> int:
        """Process id, 0 if it does not run."""
        return int(self.info(name)["pid"])

    def kill(self, name: str, signum: int = signal.SIGKILL) -> int:
        """Signal the main process of `name`, as a crash would; supervisor starts it again. Returns
        the pid, or 0. What SIGKILL was sent to has ended by then: on a busy machine that takes a
        while, in which its children serve on."""
        pid = self.pid(name)
        if pid:
            process = os.pidfd_open(pid)
            try:
                signal.pidfd_send_signal(process, signum)
                if signum == signal.SIGKILL:
                    select.select([process], [], [])
            finally:
                os.close(process)
        return pid

    def crash(self, *names: str) -> None:
        """End the main processes as a crash would, all before any is looked at again, and keep
        them down.

        supervisord is asked to stop them while they cannot notice, so it starts none again.
        """
        pids = [pid for name in names if (pid := self.pid(name))]
        _signal(pids, signal.SIGSTOP)
        for name in names:
            self._ask("stopProcess", name, False, tolerated=_FAULT_NOT_RUNNING)
        _signal(pids, signal.SIGKILL)
        self.stop(*names)

    def shutdown(self) -> None:
        """Stop every process and supervisord itself; returns when it has gone. One that ends
        already, because a `make down` was broken off, is waited for."""
        pid = 0
        with contextlib.suppress(OSError):
            try:
                pid = self._call("getPID")
                self._call("shutdown")
            except xmlrpc.client.Fault as fault:
                if fault.faultCode != _FAULT_ENDING:
                    raise
                pid = int((self.site.data_dir / "supervisord.pid").read_text())
        deadline = time.monotonic() + 60
        while pid and Path(f"/proc/{pid}").exists() and time.monotonic() < deadline:
            time.sleep(0.05)

    def tail(self, name: str, lines: int = 40) -> str:
        """The last lines a process wrote."""
        path = log_of(self.site, name)
        if not path.exists():
            return ""
        return "\n".join(path.read_text(errors="replace").splitlines()[-lines:])


def _signal(pids: Iterable[int], signum: int) -> None:
    for pid in pids:
        # One that has no handler for the request to stop has ended with it.
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signum)
