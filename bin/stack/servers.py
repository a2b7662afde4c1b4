"""The servers that a one-box stack brings with it, private and under its data directory: Postgres,
Redis, S3.

`prepare` makes their directories and configuration, `commands` is what the supervisor runs.
Production uses managed ones instead and never reads this module.
"""
import re
import shlex
import shutil
import subprocess
from pathlib import Path
from urllib.parse import urlsplit

from bin.console import Advice
from bin.stack.free_ports import is_free
from bin.stack.site import ROOT, Site
from bin.stack.unix_accounts import own_directory, own_file
from config import owned_files
from config.processes import STORE

# Debian's packages have a directory for each version.
_INSTALLED = Path("/usr/lib/postgresql")
# Postgres refuses to run as root, and root's home is closed to other users, so a server gets its
# directory bound to /mnt in a mount namespace of its own and then drops to its user: nothing above
# that directory needs to be readable. Its environment is empty; bin/stack/leftovers.py finds it by
# that mount. Propagation `slave`: with `private` it would keep every network namespace alive that
# was mounted when it started.
_AS_USER = ("exec env -i PATH=\"$PATH\" unshare --mount --propagation slave sh -c '"
            "mount --bind \"$1\" /mnt && cd /mnt && user=\"$2\" && shift 2 && "
            "exec setpriv --reuid=\"$user\" --regid=\"$user\" --clear-groups --no-new-privs "
            "--inh-caps=-all --bounding-set=-all \"$@\"' as-user ")
# A postmaster that was killed may leave children that hold its shared memory, and the next one
# refuses to start as long as they do; so it does when the number in its pid file has become that of
# another stack's Postgres. Every process of a server has its data directory as working directory.
# This is done by its own account: a link in that place would have root end other processes.
_END_ORPHANS = """\
orphans() {
    for entry in /proc/[0-9]*; do
        if [ "$entry/cwd" -ef /mnt/data ]; then echo "${entry#/proc/}"; fi
    done
}
for signal in QUIT KILL; do
    left=$(orphans)
    [ -n "$left" ] || break
    kill -s "$signal" $left || true
    for _ in 1 2 3 4 5 6 7 8 9 10; do [ -z "$(orphans)" ] || sleep 0.1; done
done
rm -f /mnt/data/postmaster.pid
"""


def commands(site: Site) -> dict[str, str]:
    """Shell lines of each server, by name. None holds a secret: `ps` shows command lines to
    everybody."""
    directory = {name: site.data_dir / name for name in ("postgres", "redis", "s3")}
    quoted = {name: shlex.quote(str(path)) for name, path in directory.items()}
    # A copy of the server from .venv where `_prepare_redis` made one, else the system's.
    redis = (f"$(test -x {quoted['redis']}/redis-server && echo /mnt/redis-server"
             " || echo redis-server)")
    programs = postgres_bin(_postgres_data(site))
    postgres = shlex.quote(f"{_END_ORPHANS}exec {programs}/postgres -D /mnt/data")
    return {
        "postgres": f"{_AS_USER} {quoted['postgres']} postgres sh -euc {postgres}",
        "redis": f"{_AS_USER} {quoted['redis']} redis {redis} /mnt/redis.conf",
        # The value is read as a line of CSV, so the pair needs quotes of its own.
        "s3": (
            "export RCLONE_AUTH_KEY='\"'$SVC_S3_ACCESS_KEY,$SVC_S3_SECRET_KEY'\"'; exec rclone"
            " serve s3 --addr ${SVC_S3_URL#http://} --config /dev/null --log-level NOTICE"
            f" {quoted['s3']}"
        ),
    }


def postgres_bin(data: Path) -> Path:
    """Directory of the Postgres programs of the version that wrote `data`, installed or not; before
    there is any data, of the newest installed ones. Raises Advice if `data` says no version."""
    if version := _version_of(data):
        return _INSTALLED / version / "bin"
    found = sorted(_INSTALLED.glob("*/bin/postgres"), key=lambda path: int(path.parts[-3]))
    if not found:
        raise Advice(
            "Postgres is not installed; `apt-get install postgresql`, or `make up` as root does it."
        )
    return found[-1].parent


def _version_of(data: Path) -> str | None:
    """The version that `data` names, None if there is no data. It becomes part of a command, and
    the account of Postgres may have put anything there."""
    file = data / "PG_VERSION"
    try:
        version = owned_files.read(file).decode(errors="replace").strip()
    except FileNotFoundError:
        return None
    except PermissionError:
        raise
    except OSError:  # a link, or no file
        version = ""
    if not re.fullmatch(r"[0-9]+(\.[0-9]+)?", version):
        raise Advice(
            f"{file} is no file that names a version of Postgres: the account of Postgres may have"
            " been taken over. Find out who changed it; then write the version into it, such as 15,"
            " or restore a backup."
        )
    return version


def _postgres_data(site: Site) -> Path:
    return site.data_dir / "postgres" / "data"


def check_port(site: Site, name: str, setting: str) -> None:
    """Raises Advice if another program has the port of a server that does not run."""
    port = site.port(setting)
    if not is_free(port):
        raise Advice(
            f"port {port}, which {name} of this stack uses, is taken by another program. Stop that,"
            f" or remove {setting} from {site.data_dir}/stack.env to choose another."
        )


def prepare(site: Site, *, durable: bool = True) -> None:
    """Make the directories and configurations; what exists is kept. Not `durable`: no fsync, for
    tests only."""
    data = _postgres_data(site)
    if not (postgres_bin(data) / "postgres").exists():
        version = postgres_bin(data).parent.name
        raise Advice(
            f"{data} is of Postgres {version}, which is not installed, and no other version reads"
            f" it: `apt-get install postgresql-{version}`. To go on with a newer one use its"
            " pg_upgrade."
        )
    _prepare_redis(site, durable)
    own_directory(site.data_dir / "s3", STORE.account)
    own_directory(site.data_dir / "s3" / site.values.get("SVC_S3_BUCKET", "svc"), STORE.account)
    if not data.exists():
        _init_postgres(site)
    _configure_postgres(site, durable)


def _prepare_redis(site: Site, durable: bool) -> None:
    directory, url = own_directory(site.data_dir / "redis", "redis"), urlsplit(
        site.values["SVC_REDIS_URL"])
    lines = [
        "bind 127.0.0.1", f"port {url.port}", f"requirepass {url.password}", "dir /mnt",
        # It looks once a second whether time has passed, not ten times: an idle one does little
        # else.
        "hz 1", "daemonize no", 'save ""', "maxmemory-policy noeviction", "appendonly yes",
        f"appendfsync {'everysec' if durable else 'no'}"
    ]
    own_file(directory / "redis.conf", "\n".join(lines) + "\n", "redis")
    # Ubuntu 22.04 has Redis 6.0, and kombu needs 6.2; requirements.txt brings one along for that
    # Python.
    bundled = ROOT / ".venv" / "bin" / "redis-server"
    if bundled.exists() and not (directory / "redis-server").exists():
        owned_files.write(directory / "redis-server", bundled.read_bytes(), 0o755)


def _init_postgres(site: Site) -> None:
    """initdb; a half-made directory of a killed attempt is removed first. Its superuser has no
    password: `_ACCESS` says who may be it."""
    shutil.rmtree(site.data_dir / "postgres", ignore_errors=True)
    directory = own_directory(site.data_dir / "postgres", "postgres")
    programs = postgres_bin(_postgres_data(site))
    initdb = (
        f"{_AS_USER} {shlex.quote(str(directory))} postgres {programs}/initdb"
        " --pgdata=/mnt/new --username=postgres --auth-local=peer --auth-host=reject"
        " --encoding=UTF8 --locale=C.UTF-8 --no-sync"
    )
    result = subprocess.run(["sh", "-c", initdb], capture_output=True, text=True, env=site.environ,
                            check=False)
    if result.returncode:
        shutil.rmtree(directory, ignore_errors=True)
        raise Advice(f"initdb failed: {result.stderr.strip() or result.stdout.strip()}")
    (directory / "new").rename(directory / "data")


# The superuser only by the socket in its own directory, and only for root and its own account.
_ACCESS = {
    "pg_hba.conf": (
        "# Written by `make up`.\nlocal all postgres peer map=superuser\n"
        "host all postgres all reject\nhost all all 127.0.0.1/32 scram-sha-256\n"
    ),
    "pg_ident.conf": "# Written by `make up`.\nsuperuser root postgres\n"
                     "superuser postgres postgres\n",
}


def _configure_postgres(site: Site, durable: bool) -> None:
    port = urlsplit(site.values["SVC_DATABASE_URL"]).port
    lines = [
        "listen_addresses = '127.0.0.1'", f"port = {port}", "unix_socket_directories = '/mnt'",
        "unix_socket_permissions = 0700", "max_connections = 200", "shared_buffers = 64MB",
        "timezone = 'UTC'", "log_line_prefix = '%m [%p] '", "log_timezone = 'UTC'",
        # A statement holds what it writes: keys and environments of sandboxes, too.
        "log_min_error_statement = panic", "log_error_verbosity = terse",
        f"fsync = {'on' if durable else 'off'}"
    ]
    data = _postgres_data(site)
    for name, text in {**_ACCESS, "stack.conf": "\n".join(lines) + "\n"}.items():
        own_file(data / name, text, "postgres")
    main, configuration = data / "postgresql.conf", "include 'stack.conf'\n"
    written = owned_files.read(main).decode()
    if not written.endswith(configuration):
        own_file(main, written + configuration, "postgres")
