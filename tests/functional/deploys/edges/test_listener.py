"""How an edge hears of changes, also in a process that has many files open."""
import subprocess
import sys

from bin.stack.site import ROOT

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
for _ in range(50):
    staging.tell()
    if heard.wait(0.2):
        sys.exit(0)
sys.exit("nothing was heard")
"""


def test_it_hears_with_more_files_open_than_select_takes(postgres_url):
    subprocess.run([sys.executable, "-c", HEARS, postgres_url], cwd=ROOT, check=True, timeout=60)
