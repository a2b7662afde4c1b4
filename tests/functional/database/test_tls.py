"""Postgres, Redis and the object store over TLS: each against a real server with a certificate of
our own authority, which is checked as the URL says."""
import contextlib
import os
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
import redis
from celery import Celery
from kombu import pools
from kombu.exceptions import OperationalError

from bin.stack import free_ports
from bin.stack.database import superuser_connection
from bin.stack.site import ROOT
from bin.stack.unix_accounts import own_file
from config.celery import celery_options
from config.settings import Settings, SettingsError
from models.database import DatabaseUnavailable, connect, connection, database
from objects.store import ObjectStore, StoreUnavailable
from services.protocols import QueueUnavailable
from tasks.publisher import CeleryQueue
from tests.stack.waiting import until
from tests.tls.certificates import make_authority

pytestmark = pytest.mark.skipif(
    shutil.which("openssl") is None, reason="the openssl program is not installed")


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return make_authority(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def stranger(tmp_path_factory):
    """An authority that signed none of the servers."""
    return make_authority(tmp_path_factory.mktemp("stranger"))


@pytest.fixture
def no_database():
    yield
    database.close_all()


@contextlib.contextmanager
def served(command, port, environ=None):
    with subprocess.Popen(command, env={**os.environ, **(environ or {})}, cwd="/",
                          stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            until(lambda: process.poll() is not None or not free_ports.is_free(port))
            assert process.poll() is None
            yield
        finally:
            process.terminate()


# -- Postgres

@pytest.fixture(scope="module")
def postgres(servers, authority):
    """The URL of the session's Postgres, which also takes TLS for the length of this module."""
    data = servers.site.data_dir / "postgres" / "data"
    for source, name in ((authority.certificate, "tls.pem"), (authority.key, "tls.key")):
        own_file(data / name, source.read_text(), "postgres")
    change(servers, "ssl_cert_file = 'tls.pem'", "ssl_key_file = 'tls.key'", "ssl = on")
    url = servers.site.values["SVC_DATABASE_URL"]
    until(lambda: encrypted(f"{url}?sslmode=prefer"))
    yield url
    change(servers, "ssl = off")


def change(servers, *settings):
    with superuser_connection(servers.site) as link, link.cursor() as cursor:
        for setting in settings:
            cursor.execute(f"ALTER SYSTEM SET {setting}")
        cursor.execute("SELECT pg_reload_conf()")


def encrypted(url):
    """Whether the connection of the rows is encrypted, by the server's word."""
    connect(url)
    database.close_all()
    with connection():
        return database.execute_sql(
            "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()").fetchone()[0]


def test_rows_travel_encrypted_from_a_server_whose_certificate_is_checked(
        postgres, authority, no_database):
    assert encrypted(f"{postgres}?sslmode=verify-full&sslrootcert={authority.ca}")
    assert not encrypted(f"{postgres}?sslmode=disable")


def test_a_database_with_another_authoritys_certificate_is_refused(
        postgres, stranger, no_database):
    with pytest.raises(DatabaseUnavailable, match="certificate verify failed"):
        encrypted(f"{postgres}?sslmode=verify-full&sslrootcert={stranger.ca}")


def test_a_database_of_another_name_is_refused(postgres, authority, no_database):
    elsewhere = postgres.replace("127.0.0.1", "localhost")
    with pytest.raises(DatabaseUnavailable, match="does not match host name"):
        encrypted(f"{elsewhere}?sslmode=verify-full&sslrootcert={authority.ca}")


def test_our_limits_stay_beside_options_of_the_url(postgres, no_database):
    connect(f"{postgres}?options=-csearch_path%3Dpg_catalog&application_name=named")
    with connection():
        shown = [database.execute_sql(f"SHOW {name}").fetchone()[0]
                 for name in ("statement_timeout", "search_path", "application_name")]
    assert shown == ["20s", "pg_catalog", "named"]


def test_what_is_no_url_of_libpq_is_told_without_its_password():
    with pytest.raises(SettingsError) as refused:
        connect("postgresql://svc:sesame@127.0.0.1/svc?sslmoed=verify-full")
    assert "SVC_DATABASE_URL" in str(refused.value) and "sesame" not in str(refused.value)
    assert refused.value.__suppress_context__


# -- Redis

@pytest.fixture(scope="module")
def redis_port(authority, tmp_path_factory):
    """A Redis that takes nothing but TLS."""
    port, directory = free_ports.free_port(), tmp_path_factory.mktemp("redis")
    bundled = ROOT / ".venv" / "bin" / "redis-server"
    program = str(bundled) if bundled.exists() else "redis-server"
    command = [
        program, "--port", "0", "--tls-port", str(port), "--bind", "127.0.0.1", "--dir",
        str(directory), "--save", "", "--tls-cert-file", str(authority.certificate),
        "--tls-key-file", str(authority.key), "--tls-ca-cert-file", str(authority.ca),
        "--tls-auth-clients", "no"
    ]
    with served(command, port):
        yield port


@pytest.fixture(autouse=True)
def no_shared_connection():
    """kombu keeps connections by address alone, whatever they are to check."""
    pools.reset()


def worker_sees(settings):
    """A connection as a worker makes it."""
    app = Celery("tls", set_as_current=False)
    app.conf.update(celery_options(settings))
    with app.connection_for_read() as link:
        link.ensure_connection(max_retries=1, interval_start=0)
        return link.default_channel.client.ping()


def test_messages_travel_over_tls(redis_port, authority):
    url = f"rediss://127.0.0.1:{redis_port}/0?ssl_ca_certs={authority.ca}"
    settings = Settings(redis_url=url)
    CeleryQueue(settings).publish("tls", "tls.nothing", {})
    with redis.Redis.from_url(url) as link:
        assert link.llen("tls") == 1
    assert worker_sees(settings)


@pytest.mark.parametrize("wrong", ["authority", "name", "plain"])
def test_a_broker_that_does_not_prove_itself_gets_no_message(
        redis_port, authority, stranger, wrong):
    url = {
        "authority": f"rediss://127.0.0.1:{redis_port}/0?ssl_ca_certs={stranger.ca}",
        "name": f"rediss://localhost:{redis_port}/0?ssl_ca_certs={authority.ca}",
        "plain": f"redis://127.0.0.1:{redis_port}/0",
    }[wrong]
    settings = Settings(redis_url=url)
    with pytest.raises(QueueUnavailable):
        CeleryQueue(settings).publish("tls", "tls.nothing", {})
    with pytest.raises((OperationalError, redis.RedisError, OSError)):
        worker_sees(settings)


def test_rediss_without_options_is_never_plain_text(redis_url):
    """kombu would speak plain text to this server, which understands nothing else."""
    settings = Settings(redis_url=redis_url.replace("redis://", "rediss://"))
    with pytest.raises(QueueUnavailable):
        CeleryQueue(settings).publish("tls", "tls.nothing", {})


# -- the object store

@pytest.fixture(scope="module")
def store(authority, tmp_path_factory):
    """Settings of an S3 server that speaks TLS."""
    directory, port = tmp_path_factory.mktemp("s3"), free_ports.free_port()
    (directory / "svc").mkdir()
    command = [
        str(ROOT / ".venv/bin/rclone"), "serve", "s3", "--addr", f"127.0.0.1:{port}", "--cert",
        str(authority.certificate), "--key", str(authority.key), "--config", "/dev/null",
        str(directory)
    ]
    with served(command, port, {"RCLONE_AUTH_KEY": '"key,secret"'}):
        yield Settings(s3_url=f"https://127.0.0.1:{port}", s3_access_key="key",
                       s3_secret_key="secret", s3_ca_file=str(authority.ca))


def test_objects_travel_over_tls(store, tmp_path: Path):
    path = tmp_path / "object"
    path.write_bytes(b"content")
    assert ObjectStore(store).put_once("k", path) == 7
    assert b"".join(ObjectStore(store).get_stream("k")) == b"content"


def test_a_store_with_another_authoritys_certificate_gets_nothing(store, stranger):
    for ca_file in (str(stranger.ca), ""):
        with pytest.raises(StoreUnavailable, match="SSLError"):
            ObjectStore(replace(store, s3_ca_file=ca_file)).find_size("k")
