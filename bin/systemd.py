"""`make systemd`: units for production in var/systemd, from the Procfile by honcho, with a drop-in
for each process: its account, its settings (config/processes.py) and what it may touch. Beside them
the accounts, and for hosts of the edge kernel settings and a packet filter.

honcho's template already says `Restart=always` and `KillMode=process`; the latter matters, because
the virtual machines a node worker started must outlive it. All units read one settings file, which
only root can, and each forgets what the table does not give it.
"""
import dataclasses
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

from bin.console import explained, say
from bin.stack.site import ROOT
from bin.stack.supervision.supervise import procfile
from bin.stack.unix_accounts import check_code
from config.processes import PROCESSES, Process, accounts
from config.settings import Settings

SETTINGS = "/etc/svc/service.env"
# A disk that is mounted late, or a certificate that comes late, is waited for as long as it takes:
# by itself systemd gives a unit up after five starts in ten seconds.
_EVERY = """[Unit]
After=network-online.target
Wants=network-online.target
StartLimitIntervalSec=0

[Service]
Environment=PATH={root}/.venv/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
EnvironmentFile={settings}
UnsetEnvironment={forgotten}
User={account}
Group={account}
UMask=0077
LimitNOFILE=65536
TimeoutStopSec=30
RestartSec=1
NoNewPrivileges=yes
LockPersonality=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
SystemCallArchitectures=native
CapabilityBoundingSet={capabilities}
"""
# Nothing of the host can be written but the directory of its own, and of the homes and of the
# checkout's var/ nothing can be seen.
_CONFINED = """AmbientCapabilities={capabilities}
ProtectSystem=strict
ProtectHome=tmpfs
BindReadOnlyPaths={visible}
InaccessiblePaths=-{root}/var -{root}/.env
PrivateTmp=yes
PrivateDevices=yes
ProtectKernelTunables=yes
ProtectKernelModules=yes
ProtectKernelLogs=yes
ProtectControlGroups=yes
ProtectClock=yes
ProtectHostname=yes
ProtectProc=invisible
ProcSubset=pid
RestrictNamespaces=yes
RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX
SystemCallFilter=@system-service
SystemCallFilter=~@privileged @resources
SystemCallErrorNumber=EPERM
"""
# A mount namespace of its own would hide the network namespaces that the node workers of a host
# make together, so nothing that needs one is here; the virtual machines are confined by the driver.
_NODE = """KillMode=process
"""
# Workers of a killed master must not keep the port; `systemctl reload` after a new certificate.
_EDGE = """KillMode=mixed
RestartSec=100ms
ExecReload=/bin/sh -c 'exec python -m config.nginx.reload'
"""
# A connection that only waits hears within 25 s that its sandbox was put to sleep.
_SYSCTL = """net.ipv4.tcp_keepalive_time = 15
net.ipv4.tcp_keepalive_intvl = 5
net.ipv4.tcp_keepalive_probes = 2
"""


def drop_in(process: Process) -> str:
    """The text of the drop-in of a process's unit."""
    every = {f"SVC_{field.name.upper()}" for field in dataclasses.fields(Settings)}
    capabilities = " ".join(f"CAP_{name.upper()}" for name in process.capabilities)
    text = _EVERY.format(
        root=ROOT, settings=SETTINGS, account=process.account,
        forgotten=" ".join(sorted(every - process.variables)), capabilities=capabilities)
    if process.is_root:
        return text + _NODE
    visible = f"{ROOT} -{sys.base_prefix}"
    text += _CONFINED.format(root=ROOT, visible=visible, capabilities=capabilities)
    if process.directory:
        mode = "0755" if process.shown else "0700"
        text += f"StateDirectory=svc/{process.directory}\nStateDirectoryMode={mode}\n"
    return text + (_EDGE if process is PROCESSES["edge"] else "")


def sysusers() -> str:
    """The accounts, for systemd-sysusers."""
    lines = [f'u {name} - "Sandbox service" - -' for name in accounts() if name != "svc-s3"]
    return "\n".join(lines) + "\n"


def export(target: Path) -> None:
    """Write units, drop-ins and accounts into a directory."""
    target.mkdir(parents=True, exist_ok=True)
    subprocess.run([
        str(ROOT / ".venv/bin/honcho"), "export", "systemd",
        str(target), "--app", "svc", "--user", "root", "--app-root",
        str(ROOT), "--concurrency", "release=0"
    ], check=True, cwd=ROOT, capture_output=True)
    for name, command in procfile().items():
        unit = target / f"svc-{name}-1.service"
        # honcho's shell is a login shell, which would read /etc/profile and lose PATH; and it
        # leaves Celery's %h as it is, which systemd would read as the home directory.
        line = f"/bin/sh -c {shlex.quote(command)}".replace("%", "%%").replace("$", "$$")
        begin, end = re.split(r"(?<=^ExecStart=).*$", unit.read_text(), flags=re.MULTILINE)
        unit.write_text(f"{begin}{line}{end}")
        directory = target / f"{unit.name}.d"
        directory.mkdir(exist_ok=True)
        (directory / "service.conf").write_text(drop_in(PROCESSES[name]))
    (target / "svc-sysusers.conf").write_text(sysusers())
    (target / "svc-edge-sysctl.conf").write_text(_SYSCTL)
    shutil.copyfile(ROOT / "config" / "nginx" / "firewall.nft", target / "svc-edge.nft")


def main() -> None:
    with explained():
        check_code()
        target = ROOT / "var" / "systemd"
        export(target)
        say(f"units are in {target}; docs/operations.md says what to do with them")


if __name__ == "__main__":
    main()
