"""The servers that a one-box stack brings with it, private and under its data directory: Postgres,
Redis, S3.

`prepare` makes their directories and configuration, `commands` is what the supervisor runs,
`make_database` creates role and database once Postgres answers. Production uses managed ones
instead and never reads this module.
"""
import glob
import os
import pwd
import shlex
import shutil
import subprocess
from pathlib import Path
from urllib.parse import urlsplit

import psycopg2
from psycopg2 import sql

from bin.console import Advice
from bin.stack.site import ROOT, Site

# Postgres refuses to run as root, and root's home is closed to other users, so a server gets its
# directory bound to /mnt in a mount namespace of its own and then drops to its user: nothing above
# that directory needs to be readable. Its environment is emptied, so that it holds none of the
# service's secrets; bin/stack/leftovers.py finds it by that mount. Propagation `slave`: with
# `private` it would keep every network namespace alive that was mounted when it started.
_AS_USER = ("exec env -i PATH=\"$PATH\" unshare --mount --propagation slave sh -c '"
            "mount --bind \"$1\" /mnt && cd /mnt && user=\"$2\" && shift 2 && "
            "exec setpriv --reuid=\"$user\" --regid=\"$user\" --clear-groups --no-new-privs "
            "--inh-caps=-all --bounding-set=-all \"$@\"' as-user ")
# A copy of the server from .venv where `_prepare_redis` made one, else the system's.
_REDIS = (
    '$(test -x "$SVC_DATA_DIR/redis/redis-server" && echo /mnt/redis-server || echo redis-server)'
)


def commands() -> dict[str, str]:
    """Shell command of each server, by name. None holds a secret: `ps` shows command lines to
    everybody."""
    return {
        "postgres": (
            f'{_AS_USER} "$SVC_DATA_DIR/postgres" postgres {postgres_bin()}/postgres -D /mnt/data'
        ),
        "redis": f'{_AS_USER} "$SVC_DATA_DIR/redis" redis {_REDIS} /mnt/redis.conf',
        # The value is read as a line of CSV, so the pair needs quotes of its own.
        "s3": (
            "export RCLONE_AUTH_KEY='\"'$SVC_S3_ACCESS_KEY,$SVC_S3_SECRET_KEY'\"'; exec rclone"
            " serve s3 --addr ${SVC_S3_URL#http://} --config /dev/null --log-level NOTICE"
            ' "$SVC_DATA_DIR/s3"'
        ),
    }


def postgres_bin() -> Path:
    """Directory of the newest installed Postgres programs."""
    found = sorted(glob.glob("/usr/lib/postgresql/*/bin/postgres"),
                   key=lambda path: int(path.split("/")[4]))
    if not found:
        raise Advice(
            "Postgres is not installed; `apt-get install postgresql`, or `make up` as root does it."
        )
    return Path(found[-1]).parent


def prepare(site: Site, *, durable: bool = True) -> None:
    """Make the directories and configurations; what exists is kept. Not `durable`: no fsync, for
    tests only."""
    _prepare_redis(site, durable)
    (site.data_dir / "s3" / site.values.get("SVC_S3_BUCKET", "svc")).mkdir(
        parents=True, exist_ok=True)
    (site.data_dir / "s3").chmod(0o700)
    if not (site.data_dir / "postgres" / "data").exists():
        _init_postgres(site)
    _configure_postgres(site, durable)


def _prepare_redis(site: Site, durable: bool) -> None:
    directory, url = _owned_directory(site.data_dir / "redis", "redis"), urlsplit(
        site.values["SVC_REDIS_URL"])
    lines = [
        "bind 127.0.0.1", f"port {url.port}", f"requirepass {url.password}", "dir /mnt",
        "daemonize no", "appendonly yes", f"appendfsync {'everysec' if durable else 'no'}",
        'save ""', "maxmemory-policy noeviction"
    ]
    _owned_file(directory / "redis.conf", "\n".join(lines) + "\n", "redis")
    # Ubuntu 22.04 has Redis 6.0, and kombu needs 6.2; requirements.txt brings one along for that
    # Python.
    bundled = ROOT / ".venv" / "bin" / "redis-server"
    if bundled.exists() and not (directory / "redis-server").exists():
        shutil.copy(bundled, directory / "redis-server")
        (directory / "redis-server").chmod(0o755)


def _init_postgres(site: Site) -> None:
    """initdb with password authentication only; a half-made directory of a killed attempt is
    removed first."""
    shutil.rmtree(site.data_dir / "postgres", ignore_errors=True)
    directory = _owned_directory(site.data_dir / "postgres", "postgres")
    _owned_file(directory / "password",
                urlsplit(site.values["SVC_DATABASE_URL"]).password or "", "postgres")
    initdb = (
        f"{_AS_USER} {shlex.quote(str(directory))} postgres {postgres_bin()}/initdb"
        " --pgdata=/mnt/new --username=postgres --auth=scram-sha-256 --pwfile=/mnt/password"
        " --encoding=UTF8 --locale=C.UTF-8 --no-sync"
    )
    result = subprocess.run(["sh", "-c", initdb], capture_output=True, text=True, env=site.environ,
                            check=False)
    (directory / "password").unlink()
    if result.returncode:
        shutil.rmtree(directory, ignore_errors=True)
        raise Advice(f"initdb failed: {result.stderr.strip() or result.stdout.strip()}")
    (directory / "new").rename(directory / "data")


def _configure_postgres(site: Site, durable: bool) -> None:
    port = urlsplit(site.values["SVC_DATABASE_URL"]).port
    lines = [
        "listen_addresses = '127.0.0.1'", f"port = {port}", "unix_socket_directories = ''",
        "max_connections = 200", "shared_buffers = 64MB", "timezone = 'UTC'",
        "log_line_prefix = '%m [%p] '", "log_timezone = 'UTC'",
        f"fsync = {'on' if durable else 'off'}"
    ]
    configuration = "include 'stack.conf'\n"
    main = site.data_dir / "postgres" / "data" / "postgresql.conf"
    _owned_file(site.data_dir / "postgres" / "data" / "stack.conf", "\n".join(lines) + "\n",
                "postgres")
    if not main.read_text().endswith(configuration):
        _owned_file(main, main.read_text() + configuration, "postgres")


def make_database(site: Site) -> None:
    """Create the service's own role and database, if they are not there; needs Postgres running."""
    url = urlsplit(site.values["SVC_DATABASE_URL"])
    name = url.path.lstrip("/")
    connection = psycopg2.connect(host=url.hostname, port=url.port, user="postgres",
                                  password=url.password, dbname="postgres", connect_timeout=5)
    connection.autocommit = True
    try:
        with connection.cursor() as cursor:
            cursor.execute("SELECT 1 FROM pg_roles WHERE rolname = %s", (url.username,))
            if not cursor.fetchone():
                role = sql.SQL("CREATE ROLE {} LOGIN PASSWORD %s").format(
                    sql.Identifier(url.username or "svc"))
                cursor.execute(role, (url.password,))
            cursor.execute("SELECT 1 FROM pg_database WHERE datname = %s", (name,))
            if not cursor.fetchone():
                cursor.execute(sql.SQL("CREATE DATABASE {} OWNER {}").format(
                    sql.Identifier(name), sql.Identifier(url.username or "svc")))
    finally:
        connection.close()


def _owned_directory(path: Path, user: str) -> Path:
    entry = pwd.getpwnam(user)
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    os.chown(path, entry.pw_uid, entry.pw_gid)
    return path


def _owned_file(path: Path, text: str, user: str) -> None:
    entry = pwd.getpwnam(user)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "w") as stream:
        os.fchown(stream.fileno(), entry.pw_uid, entry.pw_gid)
        stream.write(text)
