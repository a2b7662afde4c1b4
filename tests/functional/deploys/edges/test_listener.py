"""How an edge hears of changes, also in a process that has many files open, or after its connection
was lost."""
import subprocess
import sys
import threading

from bin.stack.site import ROOT
from models.database import connection, database
from services.deploys.edges import staging
from services.deploys.edges.listener import Listener
from tests.stack.waiting import until

HEARS = """
import os, resource, sys, threading
from models.database import connect
from services.deploys.edges import staging
from services.deploys.edges.listener import Listener

resource.setrlimit(resource.RLIMIT_NOFILE, (2000, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
for _ in range(1100):
    os.dup(0)
connect(sys.argv[1], pool_size=2)
heard = threading.Event()
Listener(heard.set).start()
if not heard.wait(10):
    sys.exit("it does not listen")
heard.clear()
for _ in range(50):
    staging.tell()
    if heard.wait(0.2):
        sys.exit(0)
sys.exit("nothing was heard")
"""


def test_it_hears_with_more_files_open_than_select_takes(postgres_url):
    subprocess.run([sys.executable, "-c", HEARS, postgres_url], cwd=ROOT, check=True, timeout=60)


def test_it_hears_again_after_its_connection_was_lost_and_can_be_ended(fresh_rows):
    heard = threading.Event()
    listener = Listener(heard.set)
    listener.start()
    assert heard.wait(10)
    lost = listening()
    heard.clear()
    with connection():
        database.execute_sql("SELECT pg_terminate_backend(%s)", lost[0])
    assert heard.wait(10), "what was told meanwhile nobody has heard"
    assert listening() not in ([], lost)
    heard.clear()
    staging.tell()
    assert heard.wait(10)
    listener.end()
    until(lambda: not listening())


def listening():
    with connection():
        return database.execute_sql(
            "SELECT pid FROM pg_stat_activity WHERE datname = current_database()"
            " AND query = 'LISTEN deploys'").fetchall()
