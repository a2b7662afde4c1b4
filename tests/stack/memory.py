"""How much memory processes of a stack take, as the kernel counts it."""
import contextlib
import re
import threading
from pathlib import Path


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
                    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
                    self.most_bytes = max(self.most_bytes, int(found[1]) * 1024 if found else 0)

    def stop(self):
        self._over.set()
        self.join()
        return self.most_bytes


def children(pid):
    """Ids of the child processes."""
    with contextlib.suppress(OSError):
        return [
            int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        ]
    return []
