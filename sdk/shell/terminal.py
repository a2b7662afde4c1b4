"""The user's own terminal, or what stands in its place: raw while a shell is open, as it was
afterwards; its size, and a descriptor that becomes readable when that changes."""
import contextlib
import os
import signal
import termios
import tty
from collections.abc import Iterator
from types import FrameType

STDIN, STDOUT, STDERR = 0, 1, 2
NO_TERMINAL = (80, 24)


def open_closed_descriptors() -> None:
    """Open /dev/null at each standard descriptor that is closed, as a daemon may start us with.
    Else the next connection would get its number, and be taken for the terminal."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= STDERR:
        pass
    os.close(descriptor)


def size() -> tuple[int, int]:
    """Columns and rows; a usual size where there is no terminal."""
    for descriptor in (STDIN, STDOUT):
        with contextlib.suppress(OSError):
            found = os.get_terminal_size(descriptor)
            if found.columns and found.lines:
                return found.columns, found.lines
    return NO_TERMINAL


@contextlib.contextmanager
def raw() -> Iterator[None]:
    """Every key goes to the shell, ctrl-C as well, and nothing is shown twice. What was typed
    before stays typed. Changes nothing where input is no terminal."""
    if not os.isatty(STDIN):
        yield
        return
    before = termios.tcgetattr(STDIN)
    tty.setraw(STDIN, termios.TCSADRAIN)
    try:
        yield
    finally:
        termios.tcsetattr(STDIN, termios.TCSADRAIN, before)


@contextlib.contextmanager
def size_changes() -> Iterator[int]:
    """A descriptor that gives a byte for each change of the size."""
    reader, writer = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def changed(number: int, frame: FrameType | None) -> None:
        with contextlib.suppress(BlockingIOError):
            os.write(writer, b"w")

    before = signal.signal(signal.SIGWINCH, changed)
    try:
        yield reader
    finally:
        signal.signal(signal.SIGWINCH, before)
        os.close(reader)
        os.close(writer)


def show(content: bytes) -> None:
    """Write all of it to the terminal."""
    remaining = memoryview(content)
    while remaining:
        remaining = remaining[os.write(STDOUT, remaining):]


def say(sentence: str) -> None:
    """A line of our own, on standard error, beside what the shell shows."""
    _write_error(f"\r\n[svc-shell] {sentence}\r\n")


def complain(sentence: str) -> None:
    """The line on standard error that says why there is no shell, or no longer."""
    _write_error(f"svc-shell: {sentence}\n")


def _write_error(text: str) -> None:
    # Not with `print`: where standard error was closed, it takes standard output. And a shell does
    # not end because nobody can be told something.
    with contextlib.suppress(OSError):
        os.write(STDERR, text.encode(errors="backslashreplace"))
