"""Makes an agent preset ready in a guest and verifies it: `activate.py SLUG [SECONDS]`, as root.

1. The preset's programs are linked into /usr/local/bin, with `node` beside them, which is Bun under
   that name (contract, Default guest image). 2. Each is asked for its version, as `user`, and has
   SECONDS in all to say the one that presets.json names. `lfg` makes all other presets ready and
   needs each of them.
3. The outcome is one file, written in one step; whoever asks for it meanwhile finds none. Exit code
   0 and the version, or 1 and why not, which is the last line of the log too.

May run again at any time: of two at once one waits for the other, and one that finds an outcome
gives that and leaves the log as it is. Standard library only, and of that what the guest's agent
has loaded too, which runs it in a fork of itself (`guest/agent/commands.py`).
"""
import fcntl
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from typing import Any

ROOT = "/opt/svc/presets"
BIN, SHIM, BUN = "/usr/local/bin", "/opt/svc/shim", "/usr/local/bin/bun"
STATE_DIR, LOG_DIR = "/run/svc-presets", "/var/log/svc"
# Held as long as it runs, so that others can wait for its end.
LOCK = "/run/svc-presets.lock"
HOME, UID = "/home/user", 1000
LIMIT_S = 110.0
# The optimising compiler of Bun costs an emulated guest more than it gains; the host says so.
PASSED_ON = ("BUN_JSC_useDFGJIT",)


_linking = threading.Lock()


class Failed(Exception):
    """A preset cannot be made ready; the text is one sentence for its user."""


class Log:
    """The install log; several threads may write lines."""

    def __init__(self, path: str) -> None:
        os.makedirs(os.path.dirname(path), exist_ok=True)
        self._file = open(path, "w", encoding="utf-8", errors="replace")
        os.chmod(path, 0o644)

    def line(self, text: str) -> None:
        """One line, there at once."""
        self._file.write(text.replace("\n", " ") + "\n")
        self._file.flush()

    def close(self) -> None:
        """No line comes any more."""
        self._file.close()


def link(target: str, path: str) -> None:
    """Make `path` a link to `target`, whatever it was, in one step; several presets may want the
    same at once."""
    draft = f"{path}.new"
    with _linking:
        if os.path.lexists(draft):
            os.unlink(draft)
        os.symlink(target, draft)
        os.replace(draft, path)


def activate(entry: dict[str, Any], log: Log, deadline: float) -> None:
    """Link the programs of one preset and verify them; raises Failed."""
    if entry["state"] != "ready":
        raise Failed(entry["reason"])
    os.makedirs(SHIM, exist_ok=True)
    link(BUN, f"{SHIM}/node")
    link(f"{SHIM}/node", f"{BIN}/node")
    for name, path in entry["bins"].items():
        link(f"{ROOT}/{path}", f"{BIN}/{name}")
        log.line(f"{BIN}/{name} -> {ROOT}/{path}")
        verify(name, entry["version"], log, deadline)


def verify(name: str, version: str, log: Log, deadline: float) -> None:
    """Have the program say its version as the guest's user; raises Failed."""
    began = time.monotonic()
    environment = {key: os.environ[key] for key in PASSED_ON if key in os.environ}
    environment |= {"HOME": HOME, "USER": "user", "LOGNAME": "user", "LANG": "C.UTF-8",
                    "PATH": f"{BIN}:/usr/bin:/bin", "TERM": "dumb"}
    try:
        process = subprocess.Popen(
            [f"{BIN}/{name}", "--version"], cwd=HOME, env=environment, user=UID, group=UID,
            extra_groups=[], start_new_session=True, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    except OSError as error:
        raise Failed(f"{name} cannot be started: {error.strerror}") from error
    try:
        output, _ = process.communicate(timeout=max(0.0, deadline - began))
    except subprocess.TimeoutExpired as error:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        raise Failed(f"{name} --version did not answer in time") from error
    said = output.decode("utf-8", "replace").split("\n")
    lines = [text.strip() for text in said if text.strip()]
    for text in lines:
        log.line(f"{name} --version: {text}")
    last = lines[-1][:500] if lines else "nothing"
    if process.returncode < 0:
        raise Failed(f"{name} --version was ended by signal {-process.returncode}")
    if process.returncode:
        raise Failed(f"{name} --version ended with code {process.returncode}: {last}")
    if version not in re.findall(r"\d[\w.+-]*", " ".join(lines)):
        raise Failed(f"{name} --version says {last}, and {version} was installed")
    log.line(f"{name} verified in {time.monotonic() - began:.1f} s")


def activate_all(presets: dict[str, Any], log: Log, deadline: float) -> None:
    """Make several presets ready, as many at a time as there are processors; raises Failed with
    what failed, once all are done."""
    places = threading.Semaphore(os.cpu_count() or 1)
    failures: dict[str, str] = {}

    def work(slug: str) -> None:
        with places:
            try:
                activate(presets[slug], log, deadline)
            except (Failed, OSError, ValueError, KeyError) as failure:
                failures[slug] = str(failure) if isinstance(failure, Failed) else repr(failure)
                log.line(f"{slug}: {failures[slug]}")

    threads = [threading.Thread(target=work, args=(slug,)) for slug in presets]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise Failed("; ".join(f"{slug}: {failures[slug]}" for slug in sorted(failures)))


def make_ready(slug: str, log: Log, deadline: float) -> str:
    """Make the preset ready; returns its version, raises Failed."""
    try:
        with open(f"{ROOT}/presets.json", encoding="utf-8") as file:
            presets = json.load(file)["presets"]
        entry = presets[slug]
        if slug != "lfg":
            activate(entry, log, deadline)
            return str(entry["version"])
        activate_all({name: other for name, other in presets.items() if name != slug}, log,
                     deadline)
        if entry["state"] != "ready":
            raise Failed(entry["reason"])
    except (OSError, ValueError, KeyError) as error:
        raise Failed(f"the presets of this guest cannot be used: {error!r}") from error
    if not os.access(f"{ROOT}/{slug}/start", os.X_OK):
        raise Failed("the web UI is not there")
    return str(entry["version"])


def find_outcome(slug: str) -> dict[str, str] | None:
    """What an earlier run since the guest's boot kept."""
    try:
        with open(f"{STATE_DIR}/{slug}.json", encoding="utf-8") as file:
            return dict(json.load(file))
    except FileNotFoundError:
        return None


def keep_outcome(slug: str, outcome: dict[str, str]) -> None:
    """Write the outcome where the host looks for it."""
    path = f"{STATE_DIR}/{slug}.json"
    with open(f"{path}.new", "w", encoding="utf-8") as file:
        json.dump(outcome, file)
    os.replace(f"{path}.new", path)


def main(slug: str, limit_s: float) -> int:
    """Returns the exit code."""
    with open(LOCK, "w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return main_alone(slug, limit_s)


def main_alone(slug: str, limit_s: float) -> int:
    """See `main`; nobody else does it meanwhile."""
    deadline = time.monotonic() + limit_s
    os.makedirs(STATE_DIR, exist_ok=True)
    outcome = find_outcome(slug)
    if outcome is None:
        log = Log(f"{LOG_DIR}/preset-{slug}.log")
        try:
            outcome = {"version": make_ready(slug, log, deadline), "error": ""}
        except Failed as failure:
            outcome = {"version": "", "error": " ".join(str(failure).split())}
        log.line(outcome["error"] or f"{slug} {outcome['version']} is ready")
        log.close()
        keep_outcome(slug, outcome)
    print(outcome["error"] or outcome["version"])
    return 1 if outcome["error"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], float(sys.argv[2]) if len(sys.argv) > 2 else LIMIT_S))
