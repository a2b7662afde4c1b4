"""The identity host's keys are fetched by HTTPS from whom a known authority vouches for alone."""
import http.server
import json
import os
import ssl
import subprocess
import sys
import threading

import pytest

from app.identity.signing_keys import KeyDirectory
from bin.stack.site import ROOT
from services.accounts.json_web_keys import as_jwk
from tests.stack.waiting import becomes
from tests.tls.certificates import make_authority

# In a process of its own, because a mirror asks on as long as its process lives.
FIND = """
import sys
from dataclasses import replace
from app.http.identity_mirror import IdentityMirror
from config.settings import Settings
from services.errors import Unavailable
try:
    print(IdentityMirror(replace(Settings(), auth_url=sys.argv[1])).find(sys.argv[2]).kid)
except Unavailable:
    print("away")
"""


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    made = KeyDirectory(tmp_path_factory.mktemp("keys"))
    made.ensure("EdDSA")
    return made


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return make_authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def url(keys, authority):
    """Of a host that publishes the keys, with nothing revoked."""

    class Publisher(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            published = {"keys": [dict(as_jwk(key)) for key in keys.list_public()]}
            body = json.dumps(published if "jwks" in self.path else {"jtis": []}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Publisher)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.certificate, authority.key)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"https://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def find(keys, url, **environ):
    """The id of the key that a mirror of the host at `url` has, or `away`."""
    command = [sys.executable, "-c", FIND, url, keys.get_signing().kid]
    return subprocess.run(command, env={**os.environ, **environ}, cwd=ROOT, timeout=60, check=True,
                          capture_output=True, text=True).stdout.strip()


@pytest.mark.parametrize("scheme", ["https", "HTTPS"])
def test_a_known_authority_is_believed(keys, authority, url, scheme):
    becomes(lambda: find(keys, url.replace("https", scheme), SSL_CERT_FILE=str(authority.ca)),
            keys.get_signing().kid)


@pytest.mark.parametrize("scheme", ["https", "HTTPS"])
def test_a_stranger_is_not(keys, url, scheme):
    assert find(keys, url.replace("https", scheme)) == "away"
