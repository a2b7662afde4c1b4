"""The API and the identity host in this process, over a real Postgres and Redis: for rules that
need no guest.

What involves a node is tested on `sim_stack`, where every process is its own.
"""
import dataclasses
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import argon2
from flask.testing import FlaskClient

from app.api import factory as api
from app.identity import factory as identity
from app.identity.local_authority import LocalAuthority
from app.identity.signing_keys import KeyDirectory
from app.operator import seeds
from config.settings import Settings
from models.database import connection, database, now
from models.ids import new_id
from models.row import Row
from models.states import Plan
from models.users import ApiKey, ServiceToken, User
from services.accounts import api_keys, tokens, users
from services.hosts.nodes import NodeFacts, heartbeat
from tests.stack.conformance import conforming

NODE = NodeFacts("n1", "127.0.0.1", 100_000, 100_000_000, 20000, 29999, {})


@dataclasses.dataclass
class Edge:
    """Both hosts, and credentials for anybody."""

    settings: Settings
    people: dict[str, str]
    api: FlaskClient
    identity: FlaskClient

    @property
    def keys(self) -> KeyDirectory:
        return KeyDirectory(self.settings.signing_keys_dir)

    def client(self) -> FlaskClient:
        """A client of the API of its own, for a thread."""
        return self.api.application.test_client()

    def user(self, name: str) -> User:
        return users.get_by_email(self.people[f"SVC_{name.upper()}_EMAIL"])

    def newcomer(self, plan: Plan = Plan.LEGACY_PRO) -> User:
        """An account that no other test uses."""
        with connection():
            return User.create(id=new_id("usr"), email=f"{new_id()}@example.test",
                               password_hash="none", plan=plan)

    def key(self, owner: User) -> dict[str, str]:
        """Headers with a fresh API key, which does not count as one of this hour's."""
        with connection():
            made = api_keys.issue(owner, "test", created_at=now() - seeds.KEY_AGE)
        return {"Authorization": f"Bearer {made.secret}"}

    def jwt(self, owner: User) -> dict[str, str]:
        """Headers with a user token."""
        minted = tokens.mint_user_token(self.settings, self.keys.get_signing(), owner, "tests")
        return {"Authorization": f"Bearer {minted.text}"}

    def service(self, owner: User | None = None) -> dict[str, str]:
        """Headers with the service token, acting for `owner` if given."""
        headers = {"Authorization": f"Bearer {self.people['SVC_SERVICE_TOKEN']}"}
        return headers | ({"X-On-Behalf-Of": owner.id} if owner else {})


def make_edge(database_url: str, redis_url: str, keys_dir: Path, **changes: Any) -> Iterator[Edge]:
    """The same with other settings; the people have the same secrets everywhere."""
    settings = dataclasses.replace(
        Settings(database_url=database_url, redis_url=redis_url, signing_keys_dir=keys_dir,
                 session_secret="for tests",
                 node_dead_after_s=1800),  # nobody speaks for the node after its first word
        **changes,
    )
    _copy_keys(keys_dir)
    api_app = conforming(api.create_app(settings, LocalAuthority(settings)))
    identity_app = conforming(identity.create_app(settings))
    people = _seed(settings)
    heartbeat(NODE)
    yield Edge(settings, people, api_app.test_client(), identity_app.test_client())
    database.close_all()


@dataclasses.dataclass
class _Seeded:
    """What was seeded once in this process, since every hash of a password takes a fifth of a
    second; those of the people are cheap ones, so that signing in takes none."""

    people: dict[str, str]
    rows: dict[type[Row], list[dict[str, Any]]]
    keys: dict[str, bytes]


_seeded: list[_Seeded] = []
# Makes hashes that take no time to verify.
CHEAP = argon2.PasswordHasher(time_cost=1, memory_cost=8, parallelism=1)


def _copy_keys(directory: Path) -> None:
    """The signing keys of the first edge, if this is another one."""
    for name, content in _seeded[0].keys.items() if _seeded else ():
        (directory / name).touch(mode=0o600)
        (directory / name).write_bytes(content)


def _seed(settings: Settings) -> dict[str, str]:
    """The development accounts and credentials: made the first time, copied afterwards."""
    if _seeded:
        with connection():
            for model, seeded_rows in _seeded[0].rows.items():
                model.insert_many(seeded_rows).on_conflict_ignore().execute()
        return _seeded[0].people
    people = seeds.seed(settings, {})
    with connection():
        for name in seeds.PERSONAS:
            cheap = CHEAP.hash(people[f"SVC_{name}_PASSWORD"])
            User.update(password_hash=cheap).where(
                User.email == people[f"SVC_{name}_EMAIL"]).execute()
        models: list[type[Row]] = [User, ApiKey, ServiceToken]
        rows = {model: list(model.select().dicts()) for model in models}
    keys = {path.name: path.read_bytes() for path in settings.signing_keys_dir.iterdir()}
    _seeded.append(_Seeded(people, rows, keys))
    return people


def host(edge: Edge, **changes: Any) -> FlaskClient:
    """Another identity process with other settings, on the same rows and keys."""
    return identity.create_app(dataclasses.replace(edge.settings, **changes)).test_client()


def wrong(edge: Edge, client: FlaskClient, email: str, address: str = "192.0.2.1",
          headers: dict[str, str] | None = None) -> int:
    """What a wrong password from this address gives."""
    body = {"email": email, "password": "a wrong password"}
    return client.post("/login", json=body, headers=headers or {},
                       environ_base={"REMOTE_ADDR": address}).status_code
