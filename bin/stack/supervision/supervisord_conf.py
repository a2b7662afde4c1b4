"""The configuration of a stack's supervisord: its programs, how soon one counts as started, how
they are stopped, and when their logs are rotated. It holds no setting and no secret.
"""
import hashlib
import shlex
from collections.abc import Iterable
from pathlib import Path

from bin.stack.site import DEVELOPMENT, ROOT, Site
from bin.stack.supervision import preloading, start_files
from config.processes import PROCESSES, STORE

# Postgres and Redis have accounts of their packages, and no setting of ours.
TABLE = {**PROCESSES, "s3": STORE}


def configuration(site: Site, names: Iterable[str]) -> str:
    """The text of supervisord.conf; it holds no setting: each process has a file of its own."""
    sections = [
        f"[supervisord]\nuser=root\ndirectory={ROOT}\nlogfile={log_of(site, 'supervisord')}\n"
        f"logfile_maxbytes=5MB\nlogfile_backups=1\npidfile={site.data_dir}/supervisord.pid\n"
        f"childlogdir={site.data_dir}/log",
        f"[unix_http_server]\nfile={socket_of(site)}\nchmod=0700",
        "[rpcinterface:supervisor]\n"
        "supervisor.rpcinterface_factory = supervisor.rpcinterface:make_main_rpcinterface",
        "[rpcinterface:restarts]\n"
        "supervisor.rpcinterface_factory = bin.stack.supervision.restart_at_once:install",
        "[rpcinterface:signals]\n"
        "supervisor.rpcinterface_factory = bin.stack.supervision.early_signals:install",
        "[rpcinterface:preloading]\n"
        "supervisor.rpcinterface_factory = bin.stack.supervision.preloading:install",
    ]
    if site.data_dir == DEVELOPMENT:  # others are gone before it pays
        sections += ["[rpcinterface:merging]\n"
                     "supervisor.rpcinterface_factory = bin.stack.supervision.merge_pages:install"]
    owner = shlex.quote(f"SVC_DATA_DIR={site.data_dir}").replace("%", "%%")
    for name in names:
        path = start_files.path_of(site, name, TABLE.get(name))
        program = ([f"{ROOT}/.venv/bin/python", *preloading.COMMAND] if name in TABLE
                   else ["/bin/sh"])
        command = shlex.join([*program, str(path)]).replace("%", "%%")
        sections.append(
            # Named from the first moment on, so that leftovers.py finds it whenever we are killed.
            f"[program:{name}]\ncommand=/usr/bin/env -i {owner} {command}\n"
            f"directory={ROOT}\n"
            f"autostart=false\n"
            f"autorestart=true\nstartsecs={_start_s(name)}\nstartretries=1000\nstopwaitsecs=25\n"
            "killasgroup=true\nredirect_stderr=true\n"
            f"stopsignal={'INT' if name == 'postgres' else 'TERM'}\n"
            f"stdout_logfile={log_of(site, name)}\nstdout_logfile_maxbytes=10MB\n"
            "stdout_logfile_backups=2"
        )
    return "\n\n".join(sections) + "\n"


def _start_s(name: str) -> int:
    """How long (s) a process must live to count as started. What ends sooner is shown as BACKOFF
    and tried again at growing intervals: a start of ours that fails does so within two seconds.
    nginx fails at once. Who kills a process that has started does not wait for the next one."""
    return 2 if name in PROCESSES and name != "edge" else 1


def log_of(site: Site, name: str) -> Path:
    """What a process writes, or supervisord itself."""
    return site.data_dir / "log" / f"{name}.log"


def socket_of(site: Site) -> Path:
    """Where supervisord listens. A unix socket's path may have 107 characters; a deep checkout gets
    one under /run instead."""
    path = site.data_dir / "supervisor.sock"
    if len(str(path)) <= 90:
        return path
    return Path("/run") / f"svc-{hashlib.sha256(str(path).encode()).hexdigest()[:16]}.sock"
