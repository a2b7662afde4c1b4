"""A guest that asks the guest gateway for objects, with a signature or a bad one, and
one that replicates."""
import contextlib
import http.client
import subprocess
from pathlib import Path
from urllib.parse import quote, unquote

from botocore.auth import S3SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from config import guest_gateway
from nodeworker.deploys import replication
from nodeworker.deploys.replica_files import PROGRAM
from nodeworker.network.namespaces import in_namespace


def signed(key, method, path, body=b"", headers=None, secret=None, key_id=None):
    """The headers of a request that is signed with a key, as clients do it: over the address in
    the one form that it has, whichever is sent."""
    path, _, query = path.partition("?")
    url = guest_gateway.URL + quote(unquote(path), safe="/-_.~")
    if query:
        parts = (part.partition("=") for part in query.split("&"))
        url += "?" + "&".join(f"{name}={quote(unquote(value), safe='-_.~')}"
                              for name, _, value in parts)
    request = AWSRequest(method, url, dict(headers or {}), body)
    request.headers["Host"] = f"{guest_gateway.ADDRESS}:{guest_gateway.PORT}"
    S3SigV4Auth(Credentials(key_id or key.key_id, secret or key.secret), "s3",
                "us-east-1").add_auth(request)
    return dict(request.headers.items())


class Guest:
    """Asks from the place of `asker` with `key`."""

    def __init__(self, asker, key):
        self.asker, self.key = asker, key

    def ask(self, method, path, body=b"", headers=None, secret=None, sent=None, key_id=None,
            spoil=lambda headers: None):
        """Status, headers and bytes of the answer to a request that is signed for `body`, and sent
        with `sent` in place of it; `spoil` changes its headers after they were signed."""
        made = signed(self.key, method, path, body, headers, secret, key_id)
        spoil(made)
        link = http.client.HTTPConnection("gateway")
        link.sock = self.asker.connect()
        with contextlib.closing(link):
            link.request(method, path, body if sent is None else sent, made)
            answer = link.getresponse()
            return answer.status, answer.headers, answer.read()

    def status(self, method, key="", query="", body=b"", **more):
        """The status of a request for a key of the bucket, or for the bucket."""
        path = f"/{self.key.bucket}" + (f"/{key}" if key else "") + (f"?{query}" if query else "")
        return self.ask(method, path, body, **more)[0]


@contextlib.contextmanager
def replicating(guest, database):
    """Litestream in the place of a guest, as a sandbox has it."""
    config = Path(database).with_suffix(".yml")
    config.write_text(replication.config_text(str(database), guest.key).replace(
        "/run/svc-replicate.sock", f"{config}.sock"))
    log = config.with_suffix(".log")
    with log.open("wb") as output:
        process = in_namespace(guest.asker.place.guest, lambda: subprocess.Popen(
            [str(PROGRAM), "replicate", "-config", str(config), "-no-expand-env"], env={},
            stdout=output, stderr=output))
    try:
        yield log
    finally:
        process.terminate()
        process.wait(20)
