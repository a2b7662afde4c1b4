"""What a stack has written: its logs, Redis and Postgres, to be searched for what is to be in none
of them."""
import base64
import gzip
import re

import psycopg2
import redis

# As kombu writes it.
_BODY = re.compile(rb'"body": ?"([A-Za-z0-9+/=]+)"')


def in_postgres(url):
    """Every row of every table as text."""
    connection = psycopg2.connect(url)
    try:
        with connection, connection.cursor() as cursor:
            cursor.execute(
                "SELECT table_name FROM information_schema.tables WHERE table_schema = 'public'")
            for (table,) in cursor.fetchall():
                cursor.execute(f'SELECT row_to_json(kept)::text FROM "{table}" AS kept')
                for (row,) in cursor.fetchall():
                    yield f"table {table}", row.encode()
    finally:
        connection.close()


def in_redis(url):
    """Every key with its value, and what the bodies of queued messages say."""
    client = redis.Redis.from_url(url)
    try:
        for key in client.scan_iter():
            content = key + b" " + b" ".join(_values(client, key))
            bodies = (base64.b64decode(body) for body in _BODY.findall(content))
            yield f"redis {key!r}", b" ".join((content, *bodies))
        yield "redis slowlog", repr(client.slowlog_get(128)).encode()
    finally:
        client.close()


def _values(client, key):
    """What a key holds, as bytes: Redis compresses what it dumps."""
    match client.type(key):
        case b"string":
            return [client.get(key) or b""]
        case b"list":
            return client.lrange(key, 0, -1)
        case b"hash":
            return [part for pair in client.hgetall(key).items() for part in pair]
        case b"set":
            return client.smembers(key)
        case b"zset":
            return client.zrange(key, 0, -1)
        case b"none":
            return []  # it has gone meanwhile
        case kind:
            raise AssertionError(f"{key!r} is a {kind!r}, which nobody here can read")


def in_logs(directory):
    """Every file below it."""
    for path in directory.rglob("*"):
        if path.is_file():
            content = path.read_bytes()
            yield f"log {path.name}", gzip.decompress(content) if path.suffix == ".gz" else content


def everything(stack):
    """All that the processes of a stack have written, as places with their content."""
    yield from in_logs(stack.site.data_dir / "log")
    yield from in_redis(stack.site.values["SVC_REDIS_URL"])
    yield from in_postgres(stack.site.values["SVC_DATABASE_URL"])
