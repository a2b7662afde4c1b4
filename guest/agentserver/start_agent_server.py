"""Starts and stops the agent server: the host runs `svc-agent-server start` in the guest, as root,
after it has written the agent server's configuration, and `svc-agent-server stop`.

Everything is under /run and lives exactly as long as the guest's RAM: a guest that boots from its
disk is given it again.
"""
import json
import os
import pwd
import shutil
import subprocess
from pathlib import Path
from typing import Any

RUN_DIR = Path("/run/svc-agent")
# The host knows the first and the last by these names, in guests of every age.
CONFIGURATION_NAME, BOOTSTRAP_NAME, STARTED_NAME = "launch.json", "bootstrap.json", "started"
UNIT = "svc-agent-server.service"
USER = "user"


def main(arguments: list[str]) -> int:
    """Command line entry; returns the exit code."""
    if arguments == ["start"]:
        return start()
    if arguments == ["stop"]:
        return stop()
    print("usage: svc-agent-server start|stop")
    return 2


def start() -> int:
    """Give the user what the configuration holds and start the agent server, without waiting until
    it is ready. One that an earlier call has started goes on: on a slow machine the host may have
    given that up before it could say so."""
    configuration = hand_over(RUN_DIR, pwd.getpwnam(USER))
    if configuration.get("source"):
        code = subprocess.run(["systemctl", "--no-block", "start", UNIT], check=False).returncode
        if code:
            return code
    # What the host looks for: this guest needs no start until its RAM is gone.
    (RUN_DIR / STARTED_NAME).touch()
    return 0


def stop() -> int:
    """End the agent server with everything it started, and forget its bootstrap; does nothing where
    there is none."""
    subprocess.run(["systemctl", "kill", "--signal=KILL", UNIT], check=False,
                   stderr=subprocess.DEVNULL)
    code = subprocess.run(["systemctl", "stop", UNIT], check=False).returncode
    shutil.rmtree(RUN_DIR, ignore_errors=True)
    return code


def hand_over(directory: Path, owner: pwd.struct_passwd) -> dict[str, Any]:
    """Move the bootstrap, if there is one, into a file of its own, and make the directory the
    owner's alone."""
    configuration: dict[str, Any] = json.loads((directory / CONFIGURATION_NAME).read_text())
    bootstrap = configuration.pop("bootstrap", None)
    if bootstrap is None:
        (directory / BOOTSTRAP_NAME).unlink(missing_ok=True)
    else:
        bootstrap["sandboxId"] = configuration["sandboxId"]
        _write(directory / BOOTSTRAP_NAME, bootstrap)
    _write(directory / CONFIGURATION_NAME, configuration)
    directory.chmod(0o700)
    for path in (directory, *directory.iterdir()):
        os.chown(path, owner.pw_uid, owner.pw_gid)
    return configuration


def _write(path: Path, content: dict[str, Any]) -> None:
    """In one step: an agent server that runs already may be reading it."""
    new = path.with_suffix(".new")
    new.unlink(missing_ok=True)
    with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w",
              encoding="utf-8") as file:
        json.dump(content, file)
    new.rename(path)
