"""Whether the parts of a stack answer: looked at from outside, as a client or a neighbouring
process would."""
import contextlib
import socket
import urllib.error
import urllib.request
from collections.abc import Collection

import psycopg2
from celery import Celery
from kombu.exceptions import OperationalError
from redis.exceptions import RedisError

from bin.stack import ports
from bin.stack.database import make_database
from bin.stack.site import Site


def answers(url: str, headers: dict[str, str] | None = None) -> bool:
    """True if `url` gives a 2xx within two seconds; never through a proxy, it is on this host."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(urllib.request.Request(url, headers=headers or {}), timeout=2):
            return True
    except (OSError, urllib.error.URLError):
        return False


def database_made(site: Site) -> bool:
    """True if Postgres takes connections; role and database are there afterwards."""
    try:
        make_database(site)
    except psycopg2.OperationalError:
        return False
    return True


def servers_listen(site: Site) -> bool:
    """True if Redis and the S3 server have their ports."""
    return not any(ports.is_free(site.port(name)) for name in ("SVC_REDIS_URL", "SVC_S3_URL"))


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


def workers_answer(site: Site, node_id: str, processes: Collection[str]) -> bool:
    """True if each Celery worker among `processes` (Procfile names) answers a ping within a
    second."""
    lanes = ("ctl", "ops", "bulk", "archive")
    wanted = {f"{lane}@{node_id}" for lane in lanes if f"node-{lane}" in processes}
    wanted |= {f"{name}@{socket.gethostname()}" for name in {"control", "webhooks"} & {*processes}}
    app = Celery(broker=site.values["SVC_REDIS_URL"])
    try:
        # With a limit it returns at the last answer; without one it goes on listening for a second.
        replies = app.control.ping(destination=[*wanted], timeout=1.0, limit=len(wanted))
    except (OperationalError, RedisError):
        return False
    finally:
        app.close()
    return wanted <= {name for reply in replies for name in reply}
