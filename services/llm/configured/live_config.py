"""The configuration as a gateway has it at the moment: read at the start, and again when a file of
it changes or somebody asks.

A call keeps the configuration that it began with. A new file that cannot be used changes nothing,
and the log says why.
"""
import logging
import os
import threading
from pathlib import Path

from services.llm.configured.config_file import LlmConfigError, list_files, load_config
from services.llm.configured.upstreams import LlmConfig

log = logging.getLogger(__name__)
_Stamp = tuple[tuple[str, int, int, int], ...]


class LiveConfig:
    """Keeps `current` up to date; raises LlmConfigError if there is none to begin with."""

    def __init__(self, path: Path | str) -> None:
        self._path = Path(path)
        self._lock = threading.Lock()
        self._seen = self._stamp()
        self.current: LlmConfig = load_config(self._path)

    def look(self) -> bool:
        """Read the files again if one of them has changed; True if there is a new configuration.
        To be called every second or so."""
        with self._lock:
            return self._stamp() != self._seen and self._read()

    def reload(self) -> bool:
        """Read the files again whatever they look like (SIGHUP)."""
        with self._lock:
            return self._read()

    def _read(self) -> bool:
        self._seen = self._stamp()
        try:
            self.current = load_config(self._path)
        except LlmConfigError as error:
            log.error("the LLM proxy keeps its old configuration: %s", error)
            return False
        log.info("the LLM proxy has a new configuration: %d upstreams, %d models",
                 len(self.current.upstreams), len(self.current.models))
        return True

    def _stamp(self) -> _Stamp:
        """What tells a changed file; one that is not there has no figures."""
        return tuple(_look_at(path) for path in list_files(self._path))


def _look_at(path: Path) -> tuple[str, int, int, int]:
    try:
        facts = os.stat(path)
    except OSError:
        return str(path), 0, 0, 0
    return str(path), facts.st_ino, facts.st_mtime_ns, facts.st_size
