"""Whether the parts of a stack answer: looked at from outside, as a client or a neighbouring
process would."""
import contextlib
import socket
import ssl
import urllib.error
import urllib.request
from collections.abc import Callable, Collection, Iterator
from functools import partial

import psycopg2
from celery import Celery
from kombu.exceptions import OperationalError
from redis.exceptions import RedisError

from bin.stack import free_ports
from bin.stack.database import make_database
from bin.stack.site import Site
from config.settings import Settings, load
from models.states import Lane
from nodeworker.lanes_alive import is_held

# What it says, how it is found out, and the processes that it depends on.
Condition = tuple[str, Callable[[], bool], Collection[str]]


def answers(url: str, headers: dict[str, str] | None = None) -> bool:
    """True if `url` gives a 2xx within two seconds; never through a proxy, it is on this host."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(urllib.request.Request(url, headers=headers or {}), timeout=2):
            return True
    except urllib.error.HTTPError as refused:
        refused.close()
        return False
    except OSError:
        return False


def edge_answers(settings: Settings) -> bool:
    """True if the edge answers a request over TLS, whatever it says, with a certificate that the
    authority of the settings vouches for."""
    context = ssl.create_default_context(cafile=settings.ca_file or None)
    if settings.tls_cert:
        # Of its names we know nothing here; clients check them.
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        with socket.create_connection(("127.0.0.1", settings.edge_port), timeout=2) as plain:
            with context.wrap_socket(plain, server_hostname="localhost") as link:
                link.sendall(b"HEAD /health HTTP/1.0\r\nHost: localhost\r\n\r\n")
                return link.recv(5) == b"HTTP/"
    except OSError:
        return False


def gateway_answers(settings: Settings) -> bool:
    """True if the gateway answers a look-up."""
    try:
        with socket.create_connection(("127.0.0.1", settings.gateway_port), timeout=2) as link:
            link.sendall(b"LOOKUP nowhere\r\n")
            return link.recv(1) == b"?"
    except OSError:
        return False


def guest_gateway_health(settings: Settings) -> str:
    """The URL that tells whether the guest gateway answers this host."""
    return f"http://127.0.0.1:{settings.guest_gateway_port}/health"


def database_made(site: Site) -> bool:
    """True if Postgres takes connections; role and database are there afterwards."""
    try:
        make_database(site)
    except psycopg2.OperationalError:
        return False
    return True


def servers_listen(site: Site) -> bool:
    """True if Redis and the S3 server have their ports."""
    return not any(free_ports.is_free(site.port(name)) for name in ("SVC_REDIS_URL", "SVC_S3_URL"))


def node_reports(site: Site, node_id: str) -> bool:
    """True if the node's heartbeat in Postgres is a few seconds old at most."""
    query = "SELECT 1 FROM nodes WHERE id = %s AND heartbeat_at > now() - interval '10 seconds'"
    try:
        with contextlib.closing(psycopg2.connect(site.values["SVC_DATABASE_URL"],
                                                 connect_timeout=3)) as connection:
            with connection.cursor() as cursor:
                cursor.execute(query, (node_id,))
                return cursor.fetchone() is not None
    except psycopg2.OperationalError:
        return False


def shell_health(settings: Settings) -> str:
    """The URL that tells whether the shell process can do its work."""
    return f"http://127.0.0.1:{settings.shell_port}/health"


def silent_workers(site: Site, node_id: str, processes: Collection[str],
                   patience_s: float = 3.0) -> set[str]:
    """Names of the Celery workers among `processes` that do not answer a ping within
    `patience_s`."""
    host = socket.gethostname()
    workers = {f"node-{lane.value}": f"{lane.value}@{node_id}" for lane in Lane}
    workers |= {name: f"{name}@{host}" for name in ("control", "webhooks")}
    asked = {name: worker for name, worker in workers.items() if name in processes}
    if not asked:
        return set()
    app = Celery(broker=site.values["SVC_REDIS_URL"])
    # The pools of kombu outlive the app: with a connection of one that died with an earlier Redis
    # nobody would be asked, and all would seem silent.
    app.control.mailbox.producer_pool = None
    try:
        with app.connection_for_write() as link:
            # With a limit it returns at the last answer; without one it listens to the end.
            replies = app.control.ping(destination=[*asked.values()], timeout=patience_s,
                                       limit=len(asked), connection=link)
    except (OperationalError, RedisError):
        replies = []
    finally:
        app.close()
    answered = {worker for reply in replies for worker in reply}
    return {name for name, worker in asked.items() if worker not in answered}


def conditions(site: Site, processes: Collection[str]) -> Iterator[Condition]:
    """What is true, soon after its start, of a stack that works."""
    settings = load(site.values)
    yield "the API answers", lambda: answers(f"{settings.api_url}/health"), ["api"]
    yield ("the identity host answers",
           lambda: answers(f"{settings.auth_url}/.well-known/jwks.json"), ["identity"])
    for name, url in (("shell", shell_health(settings)),
                      ("guest-gateway", guest_gateway_health(settings))):
        if name in processes:
            yield f"{name} answers", partial(answers, url), [name]
    if "edge" in processes:
        yield "the edge answers", lambda: edge_answers(settings), ["edge"]
    if "gateway" in processes:
        yield "the gateway answers", lambda: gateway_answers(settings), ["gateway"]
    yield ("the node worker reports", lambda: node_reports(site, settings.node_id),
           ["node-ctl", "node-ops"])
    # Those that are not there yet are soon asked again.
    yield ("the workers answer",
           lambda: not silent_workers(site, settings.node_id, processes, 0.5),
           ["control", "webhooks", "node-ops", "node-bulk", "node-archive", "node-deploy"])


def list_faults(site: Site, processes: Collection[str]) -> dict[str, str]:
    """What is wrong with processes that may well run, by name; those of which nothing is said work,
    as far as can be seen from outside."""
    settings = load(site.values)
    faults = dict.fromkeys(silent_workers(site, settings.node_id, processes), "does not answer")
    for lane in Lane:
        if not is_held(settings.node_dir, lane):
            faults[f"node-{lane.value}"] = "its start is not over"
    if not node_reports(site, settings.node_id):
        faults.setdefault("node-ctl", "its heartbeat does not arrive")
    for name, url in (("api", f"{settings.api_url}/health"),
                      ("identity", f"{settings.auth_url}/.well-known/jwks.json"),
                      ("shell", shell_health(settings)),
                      ("guest-gateway", guest_gateway_health(settings))):
        if not answers(url):
            faults[name] = "does not answer"
    if not edge_answers(settings):
        faults["edge"] = "does not answer"
    if not gateway_answers(settings):
        faults["gateway"] = "does not answer"
    return {name: text for name, text in faults.items() if name in processes}
