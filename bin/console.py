"""What the operator sees: steps with their times, and failures as one sentence that says what to
do."""
import contextlib
import os
import signal
import sys
import time
from collections.abc import Iterator
from types import FrameType

from config.settings import SettingsError

_BEGAN = time.monotonic()


class Advice(Exception):
    """Something an operator has to put right; the text says what, and is all that is printed."""


def say(text: str) -> None:
    """Print one progress line with the seconds since this command began."""
    print(f"[{time.monotonic() - _BEGAN:6.1f} s] {text}", flush=True)


@contextlib.contextmanager
def step(title: str) -> Iterator[None]:
    """Announce a step and how long it took."""
    say(title)
    began = time.monotonic()
    yield
    took = time.monotonic() - began
    if took >= 1.0:
        say(f"  done in {took:.1f} s")


def end_as_by_ctrl_c() -> None:
    """Let SIGTERM and SIGHUP end this command as Ctrl-C does, so that it ends what it has
    started."""
    for signum in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(signum) is not signal.SIG_IGN:  # nohup
            signal.signal(signum, _interrupt)


def _interrupt(signum: int, frame: "FrameType | None") -> None:
    raise KeyboardInterrupt


def let_others_read() -> None:
    """Let other accounts read what this command writes, whatever the umask of its caller: the
    processes run as accounts of their own. What is secret is written with a mode that says so."""
    os.umask(0o022)


@contextlib.contextmanager
def explained() -> Iterator[None]:
    """End the process with the sentence of an Advice, of a setting that is wrong or of a file that
    only root may use, or quietly with 130 after Ctrl-C."""
    try:
        yield
    except (Advice, SettingsError) as error:
        print(f"\nerror: {error}", file=sys.stderr, flush=True)
        sys.exit(1)
    except PermissionError as error:
        if os.geteuid() == 0:
            raise
        print(f"\nerror: {error.filename}: only root may do this.", file=sys.stderr, flush=True)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)
