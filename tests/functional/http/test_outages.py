"""What the API answers while the database or Redis is away, hangs or is busy."""
import contextlib
import socket
import threading

import pytest
from flask import Response
from flask.testing import FlaskClient

from bin.stack.free_ports import free_port
from models.database import connection, database
from tests.stack.edge import make_edge

SANDBOXES = "/v1/sandboxes"


@contextlib.contextmanager
def hanging_server():
    """A port that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listener:
        yield listener.getsockname()[1]


@pytest.fixture
def without_redis(postgres_url, tmp_path):
    yield from make_edge(postgres_url, f"redis://127.0.0.1:{free_port(0)}/0", tmp_path,
                         sandbox_rate_per_s=1.0)


@pytest.fixture
def with_hanging_redis(postgres_url, tmp_path):
    with hanging_server() as port:
        yield from make_edge(postgres_url, f"redis://127.0.0.1:{port}/0", tmp_path,
                             sandbox_rate_per_s=1.0)


@pytest.fixture
def with_two_connections(postgres_url, redis_url, tmp_path):
    yield from make_edge(postgres_url, redis_url, tmp_path, db_pool_size=2)


def test_without_redis_requests_are_served_and_creates_kept(without_redis):
    edge = without_redis
    headers = edge.key(edge.newcomer())
    made = edge.api.post(SANDBOXES, json={}, headers=headers)
    assert made.status_code == 201
    for _ in range(5):
        assert edge.api.get(f"{SANDBOXES}/{made.json['id']}", headers=headers).status_code == 200
    assert edge.api.get("/health").status_code == 200


def test_a_hanging_redis_does_not_hang_reads(with_hanging_redis):
    edge = with_hanging_redis
    headers = edge.key(edge.newcomer())
    for _ in range(20):
        assert edge.api.get(SANDBOXES, headers=headers).status_code == 200


def test_connections_that_died_cost_one_503(edge):
    headers = edge.key(edge.newcomer())
    # Several idle connections in the pool, as after a burst.
    barrier = threading.Barrier(4)

    def hold():
        with connection():
            barrier.wait(10)

    threads = [threading.Thread(target=hold) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    with connection():
        database.execute_sql(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()")
    answers = [edge.api.get(SANDBOXES, headers=headers).status_code for _ in range(6)]
    assert answers.count(503) <= 1 and answers[1:] == [200] * 5


def test_a_busy_pool_is_503_with_a_hint(with_two_connections):
    edge = with_two_connections
    headers = edge.key(edge.newcomer())
    database._wait_timeout, patience_s = 0.2, database._wait_timeout
    release, held = threading.Event(), threading.Barrier(3)

    def hold():
        with connection():
            held.wait(10)
            release.wait(30)

    threads = [threading.Thread(target=hold) for _ in range(2)]
    for thread in threads:
        thread.start()
    held.wait(10)
    try:
        answer = edge.api.get(SANDBOXES, headers=headers)
    finally:
        release.set()
        for thread in threads:
            thread.join(10)
        database._wait_timeout = patience_s
    assert answer.status_code == 503 and answer.headers["Retry-After"] and list(
        answer.json) == ["error"]
    assert edge.api.get(SANDBOXES, headers=headers).status_code == 200


def test_a_missing_database_is_503_everywhere(edge):
    headers = edge.key(edge.newcomer())
    kept = dict(database.connect_params)
    database.close_all()
    database.connect_params["port"] = free_port(0)
    try:
        for path in (SANDBOXES, f"{SANDBOXES}/x"):
            answer = edge.api.get(path, headers=headers)
            assert answer.status_code == 503 and list(answer.json) == ["error"], path
        for client in (edge.api, edge.identity):
            health = client.get("/health")
            assert (health.status_code, health.json) == (503, {"error": "down"}), "no reason"
    finally:
        database.connect_params.update(kept)
    assert edge.api.get("/health").status_code == 200


def test_an_unforeseen_error_is_500_without_details_but_with_an_id(edge, caplog):
    headers = edge.key(edge.newcomer())
    with connection():
        database.execute_sql("ALTER TABLE port_bindings RENAME TO hidden")
    try:
        # one that does not mind undeclared answers
        client = FlaskClient(edge.api.application, Response)
        answer = client.post(SANDBOXES, json={"env": {"TOKEN": "hunter2"}}, headers=headers)
    finally:
        with connection():
            database.execute_sql("ALTER TABLE hidden RENAME TO port_bindings")
    assert answer.status_code == 500 and answer.json == {"error": "internal error"}
    logged = [
        record for record in caplog.records
        if getattr(record, "request", None) == answer.headers["X-Request-Id"]
    ]
    assert len(logged) == 1
