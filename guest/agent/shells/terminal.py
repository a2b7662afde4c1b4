"""A login shell on a pseudo-terminal: it reads and writes, and knows nothing of connections.

1. The shell leads a session of its own, whose terminal it controls, as after a login.
2. Its end is the end of the terminal. A child in the background that still holds the terminal is
   cut off from it by the kernel then, and goes on.
3. Hanging up is what a lost line does: SIGHUP to everything of the session, then the shell and the
   group in the foreground are killed if they are left after KILL_AFTER_S. As after any login, what
   was started with `nohup` stays. The shell is not left to tell its jobs: it may notice first that
   its terminal is gone, and then ends as after `exit`.
"""
import fcntl
import os
import signal
import struct
import subprocess
import termios
from collections.abc import Callable, Iterator
from contextlib import suppress

from ..commands import expose_to_oom_killer
from ..loop import READ, Loop
from ..offload import reap_when_dead
from ..protocol import CHUNK_BYTES, FAILED, Refused
from .account import Account
from .request import Resize, ShellRequest

KILL_AFTER_S = 5.0
# From asm/termbits.h; Python has no name for it. A backspace takes back a whole character.
IUTF8 = 0o40000


class Terminal:
    """One shell and its terminal; calls `ended` with the exit code, unless it was hung up before.

    Raises Refused if the shell cannot be started.
    """

    def __init__(self, loop: Loop, request: ShellRequest, account: Account,
                 ended: Callable[[int], None]) -> None:
        self._loop = loop
        self._ended = ended
        self._master, line = os.openpty()
        self.silent = False
        """True once the terminal has no more to give or take."""
        try:
            self.resize(Resize(request.cols, request.rows))
            _prepare(line, account)
            self._process = _start(request, account, line)
        except (OSError, subprocess.SubprocessError) as error:
            os.close(self._master)
            raise Refused(FAILED, f"the shell could not be started: {error}") from error
        finally:
            os.close(line)
        expose_to_oom_killer(self._process.pid)
        os.set_blocking(self._master, False)
        self._pidfd = os.pidfd_open(self._process.pid)
        loop.watch(self._pidfd, READ, self._exited)

    def fileno(self) -> int:
        """The descriptor to watch: readable for output, writable for input."""
        return self._master

    def read(self) -> bytes:
        """What the terminal shows, as far as it is there, at most CHUNK_BYTES."""
        shown = bytearray()
        while len(shown) < CHUNK_BYTES and not self.silent:
            try:
                shown += os.read(self._master, CHUNK_BYTES - len(shown))
            except BlockingIOError:
                break
            except OSError:  # EIO: nobody has the other end any more
                self.silent = True
        return bytes(shown)

    def write(self, typed: bytearray) -> int:
        """Type the beginning of `typed`; returns how many bytes there was room for. A terminal that
        nobody has any more takes everything."""
        try:
            return os.write(self._master, typed)
        except BlockingIOError:
            return 0
        except OSError:
            return len(typed)

    def resize(self, size: Resize) -> None:
        """Set the size; the group in the foreground gets SIGWINCH if it is another."""
        fcntl.ioctl(self._master, termios.TIOCSWINSZ,
                    struct.pack("HHHH", size.rows, size.cols, 0, 0))

    def signal(self, number: int) -> None:
        """Send a signal to the group in the foreground."""
        _signal_group(self._foreground(), number)

    def hang_up(self) -> None:
        """The line is lost: ends the shell and what it runs in the foreground, the rest as a login
        would."""
        self._loop.unwatch(self._pidfd)
        os.close(self._pidfd)
        # The shell is not waited for meanwhile, so that no other session can get its number.
        foreground = self._foreground()
        os.close(self._master)
        for pid, _ in _members(self._process.pid):
            _ignoring_the_dead(os.kill, pid, signal.SIGHUP)
            _ignoring_the_dead(os.kill, pid, signal.SIGCONT)  # or one that is stopped hears nothing
        self._loop.call_later(KILL_AFTER_S, lambda: self._kill(foreground))

    def close(self) -> None:
        """Free the terminal of a shell that has ended."""
        os.close(self._master)

    def _exited(self) -> None:
        self._loop.unwatch(self._pidfd)
        os.close(self._pidfd)
        status = self._process.wait()
        self._ended(status if status >= 0 else 128 - status)

    def _foreground(self) -> int:
        try:
            return os.tcgetpgrp(self._master) or self._process.pid
        except OSError:
            return self._process.pid

    def _kill(self, foreground: int) -> None:
        session = self._process.pid
        for pid, group in _members(session):
            if group in (session, foreground):
                _ignoring_the_dead(os.kill, pid, signal.SIGKILL)
        self._process.returncode = 0  # it is reaped elsewhere; Popen must not try to
        reap_when_dead(self._loop, self._process.pid)


def _prepare(line: int, account: Account) -> None:
    """Make the terminal the user's, and one for UTF-8."""
    if os.geteuid() == 0:
        os.fchown(line, account.user_id, -1)
    modes = termios.tcgetattr(line)
    modes[0] |= IUTF8
    termios.tcsetattr(line, termios.TCSANOW, modes)


def _start(request: ShellRequest, account: Account, line: int) -> subprocess.Popen[bytes]:
    as_root = os.geteuid() == 0  # an agent that is tried out without has nobody else to be
    return subprocess.Popen(
        ["-" + os.path.basename(account.shell)], executable=account.shell, stdin=line, stdout=line,
        stderr=line, cwd=request.cwd, env=request.env, start_new_session=True,
        preexec_fn=_take_terminal, user=account.user_id if as_root else None,
        group=account.group_id if as_root else None,
        extra_groups=account.groups if as_root else None,
    )


def _take_terminal() -> None:
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def _signal_group(group: int, number: int) -> None:
    _ignoring_the_dead(os.killpg, group, number)


def _ignoring_the_dead(kill: Callable[[int, int], None], number: int, what: int) -> None:
    try:
        kill(number, what)
    except (ProcessLookupError, PermissionError):
        pass  # it ended by itself in this very moment, or is somebody else's


def _members(session: int) -> Iterator[tuple[int, int]]:
    """The processes of a session: number and group."""
    for name in os.listdir("/proc"):
        if name.isdigit():
            with suppress(OSError), open(f"/proc/{name}/stat", "rb") as file:
                fields = file.read().rpartition(b")")[2].split()
                if int(fields[3]) == session:
                    yield int(name), int(fields[2])
