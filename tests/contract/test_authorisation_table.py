"""Every route times every kind of credential; and proof that the table would notice.

`test_a_cell` asks the API and the identity host of a whole stack: every route with each good
credential, and one route of each surface with each bad one. Every cell is asked of both hosts in
this process, and so are the mutations: each widens one route by one credential, or blinds the
verifier in one respect, and some cell has to come out wrong.
"""
import dataclasses
import secrets
import time
from datetime import datetime, timezone

import jwt
import pytest
from flask.testing import FlaskClient

from app.http.credentials import PUBLIC, SESSION, accepted_by
from app.http.route import route_of
from models.database import connection
from models.ids import new_id
from models.sandboxes import Sandbox
from models.snapshots import Snapshot
from models.states import Plan, SnapshotState
from models.templates import Template
from services.accounts import api_keys, tokens, users
from services.accounts.principals import Credential
from tests.contract.authorisation_table import BAD, CELLS, GOOD, KINDS, OWNER, SURFACES, TABLE
from tests.stack.credentials import Newcomer, bearer, make_all
from tests.stack.real import RealService


class InnerService:
    """Both hosts in this process, with rows where a node would be needed."""

    def __init__(self, edge):
        self.edge = edge
        self.issuer = edge.settings.auth_url

    def app(self, host):
        return (self.edge.api if host == "api" else self.edge.identity).application

    def send(self, host, method, path, headers, body=None):
        app = self.app(host)
        # what is mutated need not conform
        client = FlaskClient(app, app.response_class, use_cookies=False)
        answer = client.open(path, method=method, headers=headers, json=body)
        body = answer.json if answer.is_json and answer.data else None
        return answer.status_code, body, answer.headers.get("Set-Cookie", "")

    def make_user(self, email, password):
        users.create(email, password, Plan.LEGACY_PRO)

    def mint(self, name):
        minted = tokens.mint_service_token(self.edge.settings, self.signing_key(), name, "")
        return minted.jti, minted.text

    def mint_of(self, email):
        user = users.get_by_email(email)
        return tokens.mint_service_token_of(self.edge.settings, self.signing_key(), user, "").text

    def signing_key(self):
        return self.edge.keys.get_signing()

    def make_things(self, owner):
        _, made, _ = self.send("api", "POST", "/v1/sandboxes", bearer(owner.key), {})
        with connection():
            Sandbox.update(status="stopped", task=None).where(Sandbox.id == made["id"]).execute()
            snapshot = Snapshot.create(id=new_id("snap"), owner=owner.id, node_id="n1", vcpus=1,
                                       mem_mb=1024, source_sandbox_id=made["id"],
                                       state=SnapshotState.READY, cwd="/home/user")
            Template.create(owner=owner.id, name="standing", version="1", snapshot_id=snapshot.id,
                            ports=[], latest=True)
        return {"sandbox_id": made["id"], "snapshot_id": snapshot.id}


class World:
    """A service with an owner, a stranger and every credential; `ask` is one cell of the table."""

    def __init__(self, service):
        self.service = service
        mark = secrets.token_hex(4)
        owner, other = (Newcomer(service, f"{name}-{mark}@example.test")
                        for name in ("owner", "other"))
        self.things = service.make_things(owner) | {
            "key_id": owner.make_key("revoked")[1], "slug": "some-app", "variable": "KEY",
            "template_id": "no-such-template", "port": "3000"
        }
        service.send("api", "DELETE", f"/v1/api-keys/{self.things['key_id']}", bearer(owner.jwt))
        self.credentials = make_all(service, owner, other)
        self.owner = owner
        self._settle()

    def _settle(self):
        """Wait until every process knows of the revoked service token: some requests in a row are
        refused, of the API and of the guest gateway."""
        deadline, refused = time.monotonic() + 30, 0
        while refused < 20:
            statuses = {self.service.send("api", "GET", path,
                                          self.credentials["revoked service token"])[0]
                        for path in ("/v1/models", "/v1/deploys/none")}
            refused = refused + 1 if statuses == {401} else 0
            assert time.monotonic() < deadline
            if not refused:
                time.sleep(0.2)

    def ask(self, row, kind):
        if row.rule == "/logout" and kind == "session":
            headers, _ = self.owner.sign_in()
        else:
            headers = self.credentials[kind]
        status, body, _ = self.service.send(row.host, row.method, row.path(self.things),
                                            headers | row.headers, row.content(self.things))
        return status, body

    def mismatches(self, rows, kinds=KINDS):
        for row in rows:
            for kind in kinds:
                status, body = self.ask(row, kind)
                if status != row.expected(kind) or not said(body).startswith(row.sentence(kind)):
                    yield (
                        f"{row} with {kind}: {status} {said(body)} instead of {row.expected(kind)}"
                    )


def said(body):
    """The sentence of an error."""
    return body.get("error", "") if isinstance(body, dict) else ""


@pytest.fixture(scope="module")
def real(sim_stack):
    service = RealService(sim_stack)
    yield World(service)
    service.close()


@pytest.fixture(scope="module")
def inner(edge):
    return World(InnerService(edge))


def test_the_table_has_every_route_once(edge):
    routes = {(host, method, rule.rule)
              for host, client in (("api", edge.api), ("identity", edge.identity))
              for rule in client.application.url_map.iter_rules()
              for method in rule.methods - {"HEAD", "OPTIONS"}}
    rows = [(row.host, row.method, row.rule) for row in TABLE]
    assert set(rows) == routes and len(rows) == len(set(rows))


def test_every_surface_has_every_kind():
    assert len(set(KINDS)) == len(BAD) + len(GOOD)
    for name, cells in SURFACES.items():
        assert set(cells) == set(KINDS), name


@pytest.mark.parametrize(("row", "kind"), CELLS, ids=lambda value: str(value))
def test_a_cell(real, row, kind):
    status, body = real.ask(row, kind)
    assert status == row.expected(kind), body
    if status in (401, 403):
        assert list(body) == ["error"] and body["error"].startswith(row.sentence(kind))


@pytest.mark.slow
def test_the_table_holds_in_here_too(inner):
    assert list(inner.mismatches(TABLE)) == []


@pytest.mark.parametrize("row", [row for row in TABLE if row.method == "GET"], ids=str)
def test_head_is_guarded_like_get(inner, row):
    head = dataclasses.replace(row, method="HEAD")
    assert [inner.ask(head, kind)[0] for kind in KINDS] == [row.expected(kind) for kind in KINDS]


@pytest.mark.parametrize("row", [row for row in TABLE if row.surface != "public"], ids=str)
def test_options_tells_strangers_nothing(inner, row):
    assert inner.ask(dataclasses.replace(row, method="OPTIONS"), "none")[0] == 401


@pytest.mark.parametrize("row", [row for row in TABLE if row.surface != "public"], ids=str)
def test_a_query_parameter_that_no_route_knows_is_named(inner, row):
    """Also before a body that is wrong; a route that never succeeds says what it always says."""
    kind = next(kind for kind in KINDS if SURFACES[row.surface][kind] == OWNER)
    status, body = inner.ask(dataclasses.replace(row, query="?nosuch=1"), kind)
    declared = route_of(view_of(inner, row))
    if declared.successes:
        assert status == 400 and "nosuch: Unknown field." in said(body)
        assert 400 in declared.error_statuses(row.rule)
    else:
        assert status == row.owner


def view_of(inner, row):
    app = inner.service.app(row.host)
    endpoint = next(rule.endpoint for rule in app.url_map.iter_rules()
                    if rule.rule == row.rule and row.method in rule.methods)
    return app.view_functions[endpoint]


@pytest.mark.parametrize("row", [row for row in TABLE if row.surface != "public"], ids=str)
def test_a_route_widened_by_any_credential_is_noticed(inner, row, monkeypatch):
    view = view_of(inner, row)
    accepted = accepted_by(view)
    for credential in set(Credential) - accepted:
        with monkeypatch.context() as patch:
            # A session goes before everything else a route takes, so a bearer can only come in its
            # place.
            rest = frozenset() if SESSION in accepted and credential is not PUBLIC else accepted
            patch.setattr(view, "accepted", rest | {credential})
            assert next(inner.mismatches([row]),
                        None), f"{row} also takes {credential.value}, and no cell tells"


@pytest.mark.parametrize("row", [row for row in TABLE if row.surface not in ("public", "session")],
                         ids=str)
def test_a_route_that_takes_less_is_noticed(inner, row, monkeypatch):
    view = view_of(inner, row)
    for credential in accepted_by(view):
        with monkeypatch.context() as patch:
            patch.setattr(view, "accepted", accepted_by(view) - {credential})
            assert next(inner.mismatches([row]),
                        None), f"{row} lost {credential.value}, and no cell tells"


def lax_decode(**changes):
    """`jwt.decode` without one of its checks."""
    strict = jwt.decode

    def decode(text, key, algorithms, options, **more):
        if changes.get("any_algorithm"):
            algorithms = [jwt.get_unverified_header(text)["alg"]]
            if algorithms == ["none"]:
                return strict(text, options={"verify_signature": False})
        more |= {name: None for name in ("audience", "issuer") if changes.get(f"any_{name}")}
        options = {
            "require": [claim for claim in options["require"] if claim != changes.get("spare")]
        }
        options |= {name: False for name in changes.get("skip", ())}
        return strict(text, key, algorithms=algorithms, options=options, **more)

    return decode


@pytest.mark.parametrize(("blindness", "kind"), [
    ({"skip": ["verify_exp"]}, "expired user token"),
    ({"skip": ["verify_exp"]}, "expired service token"),
    ({"skip": ["verify_iss"], "any_issuer": True}, "wrong issuer"),
    ({"skip": ["verify_signature"]}, "foreign signature"),
    ({"skip": ["verify_signature"]}, "tampered"),
    ({"any_algorithm": True}, "no algorithm"),
    ({"spare": "exp"}, "without exp"),
    ({"spare": "iat"}, "without iat"),
], ids=str)
def test_a_verifier_blind_in_one_respect_is_noticed(inner, monkeypatch, blindness, kind):
    rows = [
        row for row in TABLE if row.surface in ("sandbox", "keys") and "expired service" not in kind
        or row.surface == "services" and "expired service" in kind
    ]
    monkeypatch.setattr(tokens.jwt, "decode", lax_decode(**blindness))
    noticed = [next(inner.mismatches([row], [kind]), None) for row in rows]
    assert all(noticed), noticed


@pytest.mark.parametrize(("target", "name", "replacement", "kind"), [
    (tokens, "is_standing", lambda jti: True, "revoked service token"),
    (tokens.Claims, "is_of_user", False, "service token of owner"),
    (api_keys, "now", lambda: datetime(2000, 1, 1, tzinfo=timezone.utc), "expired key"),
], ids=lambda value: value if isinstance(value, str) else "")
def test_a_look_up_that_lets_too_much_through_is_noticed(inner, monkeypatch, target, name,
                                                         replacement, kind):
    monkeypatch.setattr(target, name, replacement)
    assert next(
        inner.mismatches([row for row in TABLE if row.surface in ("sandbox", "services")], [kind]),
        None)
