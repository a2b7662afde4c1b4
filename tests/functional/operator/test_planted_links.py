"""Links and numbers that a process which was taken over leaves in its directory for root: they lead
root to no file and no process outside of it."""
import contextlib
import os
import pwd
import subprocess

import pytest

from app.identity.signing_keys import KeyDirectory
from bin.stack import servers, unix_accounts
from bin.stack.site import Site
from config import owned_files
from config.nginx.reload import reload
from config.nginx.render import find_nginx, write
from config.processes import STORE
from config.settings import Settings

URLS = {"SVC_DATABASE_URL": "postgresql://svc:sesame@127.0.0.1:1/svc",
        "SVC_REDIS_URL": "redis://:sesame@127.0.0.1:1/0"}


@pytest.fixture
def site(tmp_path):
    """A stack whose directories are there, those of Postgres and of the store too."""
    made = Site(tmp_path / "var", {**URLS, "SVC_DATA_DIR": str(tmp_path / "var")})
    unix_accounts.prepare(made)
    unix_accounts.own_directory(made.data_dir / "postgres", "postgres")
    unix_accounts.own_directory(made.data_dir / "s3", STORE.account)
    return made


@pytest.fixture
def roots(tmp_path):
    """A directory of root's with one file."""
    directory = tmp_path / "roots"
    directory.mkdir(mode=0o755)
    (directory / "file").write_text("of root")
    (directory / "file").chmod(0o600)
    return directory


def plant(link, target):
    """What the account that owns the directory could do."""
    owner = link.parent.stat()
    link.symlink_to(target)
    os.chown(link, owner.st_uid, owner.st_gid, follow_symlinks=False)


def is_untouched(directory):
    states = [path.stat() for path in (directory, directory / "file")]
    return ([(state.st_uid, state.st_mode & 0o777) for state in states] == [(0, 0o755), (0, 0o600)]
            and [path.name for path in directory.iterdir()] == ["file"]
            and (directory / "file").read_text() == "of root")


@contextlib.contextmanager
def goes_on(directory):
    """A process of root's with that working directory, which still runs at the end."""
    with subprocess.Popen(["sleep", "60"], cwd=directory) as process:
        try:
            yield process
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(0.2)
        finally:
            process.kill()


@pytest.mark.parametrize("target", ["file", "new"])
def test_the_configuration_of_the_edge(site, roots, target):
    edge = site.data_dir / "edge"
    for name in ("nginx.draft", "nginx.conf.draft", "nginx.conf"):
        plant(edge / name, roots / target)
    write(edge / "nginx.conf", "events {}")
    assert is_untouched(roots)
    made = edge / "nginx.conf"
    assert made.read_text() == "events {}" and not made.is_symlink()
    assert made.owner() == "svc-edge" and made.stat().st_mode & 0o777 == 0o600


def test_a_reload_signals_no_other_process(site):
    edge = site.data_dir / "edge"
    with goes_on(edge) as other:
        (edge / "nginx.pid").write_text(str(other.pid))
        with pytest.raises(SystemExit, match="names no nginx of this edge"):
            reload(Settings(data_dir=site.data_dir), find_nginx())
    assert not (edge / "nginx.conf").exists()


def test_a_reload_reads_no_file_of_others_for_the_number(site, roots):
    plant(site.data_dir / "edge" / "nginx.pid", roots / "file")
    with pytest.raises(OSError, match="nginx.pid"):
        reload(Settings(data_dir=site.data_dir), find_nginx())


@pytest.mark.parametrize("target", ["file", "new"])
def test_the_signing_keys(site, roots, target):
    keys = site.data_dir / "keys"
    plant(keys / ".lock", roots / target)
    made = KeyDirectory(keys).ensure("EdDSA")
    assert is_untouched(roots)
    assert {path.owner() for path in keys.glob(f"{made}*")} == {"svc-identity"}


def test_a_directory_in_that_of_an_account(site, roots):
    bucket = site.data_dir / "s3" / "svc"
    plant(bucket, roots)
    with pytest.raises(OSError, match="svc"):
        unix_accounts.own_directory(bucket, STORE.account)
    assert is_untouched(roots)


def test_what_root_made_for_an_account_becomes_its_own_and_links_lead_nowhere(tmp_path, roots):
    made = tmp_path / "made"
    (made / "deep").mkdir(parents=True)
    (made / "deep" / "file").touch()
    (made / "deep" / "link").symlink_to(roots)
    (tmp_path / "link").symlink_to(made)
    unix_accounts.own_directory(tmp_path / "link", STORE.account)
    assert is_untouched(roots)
    for path in (made, made / "deep", made / "deep" / "file", made / "deep" / "link"):
        assert path.lstat().st_uid == pwd.getpwnam(STORE.account).pw_uid
    assert made.stat().st_mode & 0o777 == 0o700


def test_a_file_in_a_directory_that_an_account_has_replaced(site, roots):
    """As `conf.d` directories go, the name of the file is enough."""
    plant(site.data_dir / "postgres" / "data", roots)
    with pytest.raises(OSError, match="data"):
        unix_accounts.own_file(site.data_dir / "postgres" / "data" / "stack.conf", "", "postgres")
    assert is_untouched(roots)


def test_the_configuration_of_postgres(site, roots):
    data = unix_accounts.own_directory(site.data_dir / "postgres" / "data", "postgres")
    plant(data / "postgresql.conf", roots / "file")
    with pytest.raises(OSError, match="postgresql.conf"):
        servers._configure_postgres(site, durable=True)
    assert is_untouched(roots)
    assert not any("of root" in path.read_text() for path in data.iterdir()
                   if not path.is_symlink())


def test_the_redis_that_is_brought_along(site, roots, monkeypatch):
    monkeypatch.setattr(servers, "ROOT", site.data_dir.parent)
    bundled = site.data_dir.parent / ".venv" / "bin" / "redis-server"
    bundled.parent.mkdir(parents=True)
    bundled.write_text("a server")
    copy = unix_accounts.own_directory(site.data_dir / "redis", "redis") / "redis-server"
    plant(copy, roots / "new")
    servers._prepare_redis(site, durable=True)
    assert is_untouched(roots)
    assert copy.read_text() == "a server" and copy.stat().st_mode & 0o777 == 0o755


def test_a_start_of_postgres_ends_nobody_elses_processes(site, roots):
    line, number = servers.commands(site)["postgres"], roots / "postmaster.pid"
    number.touch()
    with goes_on(roots):
        plant(site.data_dir / "postgres" / "data", roots)
        started = subprocess.run(["sh", "-euc", line], text=True, capture_output=True, timeout=60,
                                 check=False)
    assert started.returncode and number.exists(), started.stderr


def test_a_pipe_is_not_waited_for(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    assert owned_files.read(tmp_path / "pipe") == b""
