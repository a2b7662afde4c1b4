"""How much memory processes of a stack take, as the kernel counts it."""
import contextlib
import re
import statistics
import threading
from pathlib import Path

from bin.stack import leftovers


class Watch(threading.Thread):
    """The most memory that processes ever held, children that come and go included."""

    def __init__(self, pids):
        super().__init__(daemon=True)
        self._pids = pids
        self._over = threading.Event()
        self.most_bytes = 0

    def run(self):
        while not self._over.wait(0.02):
            for pid in (*self._pids, *(child for pid in self._pids for child in children(pid))):
                with contextlib.suppress(OSError):
                    self.most_bytes = max(self.most_bytes, _read(pid, "VmHWM"))

    def stop(self):
        self._over.set()
        self.join()
        return self.most_bytes


class GrowthWatch(threading.Thread):
    """By how many bytes each process of a stack grows at most, those that start meanwhile included.

    What a process maps of files is left out: the workers look at guests' memory that way.
    `most_bytes` has the figures by pid, `commands` what these processes were called last.
    """

    def __init__(self, data_dir):
        super().__init__(daemon=True)
        self._data_dir = data_dir
        self._over = threading.Event()
        self.commands = {}
        self._before = self._held()
        self._ordinary = statistics.median(self._before.values())
        self.most_bytes = {}

    def run(self):
        while not self._over.wait(0.1):
            for pid, size in self._held().items():
                before = self._before.setdefault(pid, max(size, self._ordinary))
                self.most_bytes[pid] = max(self.most_bytes.get(pid, 0), size - before)

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *error):
        self._over.set()
        self.join()

    def _held(self):
        held = {}
        for pid, command in leftovers.processes_of(self._data_dir).items():
            with contextlib.suppress(OSError):
                held[pid] = _read(pid, "RssAnon")
                self.commands[pid] = command
        return held


def children(pid):
    """Ids of the child processes."""
    with contextlib.suppress(OSError):
        return [
            int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        ]
    return []


def memory_of(pid):
    """Everything that a process may write to: its heap, its stacks, its data."""
    held = []
    with open(f"/proc/{pid}/mem", "rb", buffering=0) as memory:
        for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
            area, rights = line.split()[:2]
            low, high = (int(end, 16) for end in area.split("-"))
            if rights.startswith("rw"):
                with contextlib.suppress(OSError):
                    memory.seek(low)
                    held.append(memory.read(high - low))
    return b"\n".join(held)


def growth(stack, name):
    """A function: by how many bytes a worker of a process of `stack` has grown at most since
    now."""
    before = {}
    for pid in children(stack.supervisor.pid(name)):
        Path(f"/proc/{pid}/clear_refs").write_text("5")  # the peak begins anew
        before[pid] = _read(pid, "VmRSS")
    assert before
    return lambda: max(_read(pid, "VmHWM") - size for pid, size in before.items())


def _read(pid, name):
    found = re.search(rf"{name}:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    return int(found[1]) * 1024 if found else 0
