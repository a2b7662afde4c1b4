"""What waits for an identity host that takes connections and says nothing."""
import socket
import subprocess
import sys

from bin.stack.site import ROOT

# In a process of its own, because a mirror asks on as long as its process lives. It prints how many
# of its callers, who name an unknown key, have their answer before the first that waited.
ASK = """
import sys, threading, time
from dataclasses import replace
from app.http import identity_mirror
from config.settings import Settings

mirror = identity_mirror.IdentityMirror(replace(Settings(), auth_url=sys.argv[1]))
mirror._keys, mirror._revoked = {}, frozenset()
took_s = []

def ask():
    began = time.monotonic()
    assert mirror.find("made up") is None
    took_s.append(time.monotonic() - began)

callers = [threading.Thread(target=ask) for _ in range(40)]
for each in callers:
    each.start()
for each in callers:
    each.join()
print(sum(each < identity_mirror._WAIT_S / 2 for each in took_s))
"""


def test_few_callers_wait_for_a_host_that_is_away():
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        asked = subprocess.run([sys.executable, "-c", ASK, url], cwd=ROOT, check=True, timeout=60,
                               capture_output=True, text=True)
    assert int(asked.stdout) == 36
