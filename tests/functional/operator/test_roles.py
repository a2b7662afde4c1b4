"""Each process of a running stack has an account, an environment and a view of files of its own,
and the service's role in Postgres is nobody special."""
import os
import pwd
import subprocess
import sys
from pathlib import Path

import psycopg2
import pytest

from bin.stack.database import make_database, superuser_connection
from bin.stack.running import Stack
from bin.stack.site import FAULT_FILE, ROOT, Site
from bin.stack.supervision import start_files
from bin.stack.supervision.supervisord_conf import TABLE
from config.processes import NODE_CAPABILITIES, PROCESSES
from tests.stack.memory import memory_of
from tests.stack.waiting import until

CONFINED = [name for name, row in TABLE.items() if not row.is_root]
pytestmark = pytest.mark.usefixtures("flower")
SECRETS = ("SVC_DATABASE_URL", "SVC_REDIS_URL", "SVC_S3_SECRET_KEY", "SVC_SESSION_SECRET",
           "SVC_WEBHOOK_SECRETS", "SVC_FLOWER_BASIC_AUTH", "SVC_EDGE_SECRET",
           "SVC_GUEST_SECRET", "SVC_VARIABLES_SECRET")
CAP_SYS_MODULE, CAP_SYS_ADMIN = 16, 21
# Those that a process without root may keep.
CAPABILITIES = {"net_bind_service": 1 << 10}


def family(stack, name):
    """The process that the supervisor started, and its children."""
    first = stack.supervisor.pid(name)
    assert first, f"{name} does not run"
    children = Path(f"/proc/{first}/task/{first}/children").read_text().split()
    return [first, *map(int, children)]


def environ_of(pid):
    """What a program was started with."""
    entries = Path(f"/proc/{pid}/environ").read_text().split("\0")
    return dict(entry.split("=", 1) for entry in entries if "=" in entry)


def told(stack, name):
    """What a process was told when it began."""
    return start_files.read(start_files.path_of(stack.site, name, TABLE[name])).environ


def status_of(pid):
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return dict(line.split(":\t", 1) for line in lines if ":\t" in line)


@pytest.mark.parametrize("name", TABLE)
def test_a_process_has_its_account_and_no_privilege(sim_stack, name):
    account = pwd.getpwnam(TABLE[name].account)
    for pid in family(sim_stack, name):
        status = status_of(pid)
        assert set(status["Uid"].split()) == {str(account.pw_uid)}
        assert set(status["Gid"].split()) == {str(account.pw_gid)}
        assert status["NoNewPrivs"] == "1"
        held = int(status["CapBnd"], 16) | int(status["CapEff"], 16)
        if account.pw_uid:
            assert held == sum(CAPABILITIES[each] for each in TABLE[name].capabilities)
            assert status["Groups"].split() in ([], [str(account.pw_gid)])
        else:
            assert held & 1 << CAP_SYS_ADMIN and not held & 1 << CAP_SYS_MODULE
            assert bin(held).count("1") <= len(NODE_CAPABILITIES)


@pytest.mark.parametrize("name", TABLE)
def test_a_process_is_told_its_settings_and_holds_no_other_secret(sim_stack, name):
    """Its whole memory is looked at: it may be a fork of a process that knew more."""
    own = TABLE[name].variables | ({FAULT_FILE} if TABLE[name].is_root else set())
    assert {key for key in told(sim_stack, name) if key.startswith("SVC_")} <= own
    values = sim_stack.site.values
    others = [values[key].encode() for key in SECRETS if key not in own]
    known = [value.encode() for key, value in values.items() if key in own & set(SECRETS)]
    for pid in family(sim_stack, name):
        held = memory_of(pid)
        assert not [secret for secret in others if secret in held]
    # Nothing is found in memory that was not read.
    assert not known or name in ("edge", "s3") or any(secret in held for secret in known)


def test_the_supervisor_is_told_nothing_but_whose_it_is(sim_stack):
    environ = environ_of(supervisor_pid(sim_stack))
    assert [key for key in environ if key.startswith("SVC_")] == ["SVC_DATA_DIR"]


def supervisor_pid(stack):
    return int((stack.site.data_dir / "supervisord.pid").read_text())


@pytest.mark.parametrize("name", CONFINED)
def test_a_process_sees_nothing_of_the_stack_but_its_own_directory(sim_stack, name):
    data_dir, own = sim_stack.site.data_dir, sim_stack.site.directory_of(TABLE[name])
    root = Path(f"/proc/{sim_stack.supervisor.pid(name)}/root")
    seen = sorted(os.listdir(root / str(ROOT / "var").lstrip("/")))
    assert seen == [data_dir.name]
    shown = {own.name if own else "", TABLE[name].reads} - {""}
    assert set(os.listdir(root / str(data_dir).lstrip("/"))) == shown
    assert (root / str(ROOT / "Procfile").lstrip("/")).exists()


@pytest.mark.parametrize("name", CONFINED)
def test_an_account_reads_no_secret_of_the_host(sim_stack, name):
    """As the process itself would: in its namespaces, with its account."""
    pid, site = sim_stack.supervisor.pid(name), sim_stack.site
    files = [site.data_dir / "stack.env", site.data_dir / "dev.env",
             site.data_dir / "start" / f"{name}.json", Path("/etc/shadow"),
             Path(f"/proc/{supervisor_pid(sim_stack)}/environ")]
    own = site.directory_of(TABLE[name])
    others = {site.directory_of(row) for row in TABLE.values()} - {None, own}
    others -= {site.data_dir / TABLE[name].reads}
    account = TABLE[name].account
    script = "for path; do if test -r \"$path\"; then echo \"$path\"; fi; done; touch Procfile"
    tried = subprocess.run([
        "nsenter", f"--target={pid}", "--mount", f"--wd={ROOT}", "setpriv", f"--reuid={account}",
        f"--regid={account}", "--clear-groups", "--no-new-privs", "--bounding-set=-all", "sh", "-c",
        script, "sh", *map(str, [*files, *others])
    ], text=True, capture_output=True, check=False)
    assert tried.stdout == "" and "touch" in tried.stderr


# -- a changed setting

def test_a_restart_takes_up_a_changed_setting(sim_stack):
    changed = {**sim_stack.site.values, "SVC_RELAY_POLL_S": "0.75"}
    other = Stack(Site(sim_stack.site.data_dir, changed), durable=False)
    try:
        other.supervisor.launch()
        other.restart("relay")
        until(lambda: b"SVC_RELAY_POLL_S=0.75" in memory_of(other.supervisor.pid("relay")))
    finally:
        sim_stack.supervisor.launch()
        sim_stack.restart("relay")
    until(lambda: b"SVC_DATABASE_URL=" in memory_of(sim_stack.supervisor.pid("relay")))
    assert b"SVC_RELAY_POLL_S=" not in memory_of(sim_stack.supervisor.pid("relay"))


# -- Postgres

def test_the_services_role_is_nobody_special(servers):
    url = servers.site.values["SVC_DATABASE_URL"]
    link = psycopg2.connect(url)
    link.autocommit = True
    try:
        with link.cursor() as cursor:
            cursor.execute("SELECT rolname, rolsuper, rolcreaterole, rolcreatedb, rolreplication,"
                           " rolbypassrls FROM pg_roles WHERE rolname = current_user")
            assert cursor.fetchone() == ("svc", False, False, False, False, False)
            cursor.execute("SELECT count(*) FROM pg_auth_members"
                           " WHERE member = current_user::regrole")
            assert cursor.fetchone() == (0,)
            for statement in ("COPY (SELECT 1) TO PROGRAM 'true'", "SELECT * FROM pg_authid",
                              "SELECT pg_read_file('postgresql.conf')", "SET ROLE postgres",
                              "CREATE ROLE mallory", "CREATE DATABASE mallory",
                              "ALTER SYSTEM SET fsync = off"):
                with pytest.raises(psycopg2.errors.InsufficientPrivilege):
                    cursor.execute(statement)
    finally:
        link.close()


def test_the_superuser_has_no_password_and_comes_by_no_port(servers):
    url = servers.site.values["SVC_DATABASE_URL"]
    with pytest.raises(psycopg2.OperationalError, match="pg_hba.conf rejects connection"):
        psycopg2.connect(url.replace("//svc:", "//postgres:"), dbname="postgres")
    with superuser_connection(servers.site) as link, link.cursor() as cursor:
        cursor.execute("SELECT rolpassword FROM pg_authid WHERE rolname = 'postgres'")
        assert cursor.fetchone() == (None,)


def test_the_superusers_socket_is_closed_to_other_accounts(servers):
    """Even by a descriptor of the directory, which they may not enter."""
    directory = os.open(servers.site.data_dir / "postgres", os.O_PATH)
    script = (
        "import os, sys, psycopg2; os.setgroups([]); os.setgid(65534); os.setuid(65534);"
        "psycopg2.connect(host=sys.argv[1], port=sys.argv[2], user='postgres')"
    )
    command = [sys.executable, "-c", script, f"/proc/self/fd/{directory}",
               str(servers.site.port("SVC_DATABASE_URL"))]
    try:
        tried = subprocess.run(command, text=True, capture_output=True, check=False,
                               pass_fds=[directory])
    finally:
        os.close(directory)
    assert tried.returncode == 1 and "Permission denied" in tried.stderr


def test_a_database_of_an_earlier_version_loses_its_superusers_password(servers):
    """Until now the superuser had the service's password, and came by the port."""
    with superuser_connection(servers.site) as link, link.cursor() as cursor:
        cursor.execute("ALTER ROLE postgres PASSWORD 'sesame'")
        cursor.execute("ALTER ROLE svc SUPERUSER")
    make_database(servers.site)
    with superuser_connection(servers.site) as link, link.cursor() as cursor:
        cursor.execute("SELECT rolname FROM pg_authid WHERE rolpassword IS NOT NULL")
        assert cursor.fetchall() == [("svc",)]
        cursor.execute("SELECT rolname FROM pg_roles WHERE rolsuper")
        assert cursor.fetchall() == [("postgres",)]


def test_every_process_of_the_procfile_was_looked_at(sim_stack):
    assert set(PROCESSES) == {*sim_stack.processes, "flower"} <= set(TABLE)
