"""`make systemd`: units for production in var/systemd, from the Procfile by honcho.

honcho's template already says `Restart=always` and `KillMode=process`; the latter matters, because
the virtual machines a node worker started must outlive it. A drop-in adds what it lacks: the
settings file, an order, a file limit.
"""
import re
import subprocess

from bin.console import explained, say
from bin.stack.site import ROOT
from bin.stack.supervise import procfile

DROP_IN = """[Unit]
After=network-online.target

[Service]
Environment=PATH={root}/.venv/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
EnvironmentFile=/etc/svc/service.env
LimitNOFILE=65536
TimeoutStopSec=30
KillMode=process
RestartSec=1
"""


def main() -> None:
    with explained():
        target = ROOT / "var" / "systemd"
        target.mkdir(parents=True, exist_ok=True)
        subprocess.run([
            str(ROOT / ".venv/bin/honcho"), "export", "systemd",
            str(target), "--app", "svc", "--user", "root", "--app-root",
            str(ROOT), "--concurrency", "release=0"
        ], check=True, cwd=ROOT)
        for name in procfile():
            unit = target / f"svc-{name}-1.service"
            # honcho leaves Celery's %h as it is, and systemd would read it as the home directory.
            unit.write_text(
                re.sub(
                    r"^ExecStart=.*$", lambda line: line[0].replace("%", "%%").replace("$", "$$"),
                    unit.read_text(), flags=re.MULTILINE,
                )
            )
            directory = target / f"{unit.name}.d"
            directory.mkdir(exist_ok=True)
            (directory / "service.conf").write_text(DROP_IN.format(root=ROOT))
        say(f"units are in {target}; docs/operations.md says what to do with them")


if __name__ == "__main__":
    main()
