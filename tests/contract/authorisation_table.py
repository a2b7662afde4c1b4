"""The authorisation table as data: every route times every kind of credential has one expected
status.

Nothing here looks at the code under test: the surfaces say who may come in, the rows which surface
a route belongs to. A cell is 401, one of four ways to be refused with 403, or OWNER / STRANGER:
what the row says about a caller who was let in and who owns, or does not own, the thing in the
path. Requests are chosen so that being let in changes nothing: a sandbox that is stopped (409), a
body that breaks a rule (400), a pin to a node that does not exist (421), a snapshot that a template
stands on (409).
"""
from dataclasses import dataclass, field
from typing import Any

OWNER, STRANGER = "owner", "stranger"
# A credential of a kind the route does not take; a service that names nobody; one that names
# somebody who is not there; a token of a user that names another one.
WRONG_KIND, NO_OWNER, NO_SUCH_OWNER = "wrong kind", "no owner", "no such owner"
OTHER_OWNER = "other owner"
SENTENCES = {
    WRONG_KIND: "This route does not take", NO_OWNER: "A service has to say for whom it acts",
    NO_SUCH_OWNER: "X-On-Behalf-Of names no account",
    OTHER_OWNER: "X-On-Behalf-Of names another account than the token"
}

# What is no good anywhere.
BAD = (
    "none",
    "malformed",
    "another scheme",
    "unknown key",
    "revoked key",
    "expired key",
    "expired user token",
    "wrong audience",
    "both audiences",
    "no algorithm",
    "key confusion",
    "unknown signer",
    "foreign signature",
    "tampered",
    "wrong issuer",
    "without exp",
    "without iat",
    "without iss",
    "without aud",
    "without sub",
    "without jti",
    "token of nobody",
    "revoked service token",
    "expired service token",
    "session",
    "ended session",
)
# What is good, but not for everything.
GOOD = (
    "own key",
    "other's key",
    "own user token",
    "other's user token",
    "service",
    "service for owner",
    "service for other",
    "service for nobody",
    "service token of owner",
    "service token of owner for owner",
    "service token of owner for other",
    "admin",
    "admin for owner",
)
KINDS = BAD + GOOD


def _surface(**good: int | str) -> dict[str, int | str]:
    cells: dict[str, int | str] = {kind: 401 for kind in BAD} | {kind: WRONG_KIND for kind in GOOD}
    cells["service for nobody"] = NO_SUCH_OWNER
    cells["service token of owner for other"] = OTHER_OWNER
    return cells | {
        name.replace("__", "'").replace("_", " "): status for name, status in good.items()
    }


USERS = {"own_user_token": OWNER, "other__s_user_token": STRANGER, "service": NO_OWNER,
         "service_for_owner": OWNER, "service_for_other": STRANGER,
         "service_token_of_owner": OWNER, "service_token_of_owner_for_owner": OWNER}
SURFACES: dict[str, dict[str, int | str]] = {
    "sandbox": _surface(own_key=OWNER, other__s_key=STRANGER, **USERS),
    "keys": _surface(**USERS),
    # A service that acts for nobody changes the system catalogue.
    "templates": _surface(own_key=OWNER, other__s_key=STRANGER, **USERS | {"service": STRANGER}),
    "services": _surface(service=OWNER, service_for_owner=OWNER, service_for_other=OWNER,
                         service_token_of_owner=OWNER, service_token_of_owner_for_owner=OWNER),
    # A service publishes for somebody.
    "publishing": _surface(service=NO_OWNER, service_for_owner=OWNER, service_for_other=STRANGER,
                           service_token_of_owner=OWNER, service_token_of_owner_for_owner=OWNER),
    "admin": _surface(admin=OWNER, admin_for_owner=OWNER),
    # The cookie is the credential; a bearer of any kind is not looked at.
    "session": {kind: 401 for kind in KINDS} | {"session": OWNER},
    "public": {kind: OWNER for kind in KINDS},
}


@dataclass(frozen=True)
class Row:
    """One route: its surface, a request to it, and what those who are let in get."""

    host: str
    method: str
    rule: str
    surface: str
    owner: int
    stranger: int
    body: Any = None
    headers: dict[str, str] = field(default_factory=dict)
    query: str = ""

    def __str__(self) -> str:
        return f"{self.host} {self.method} {self.rule}"

    def expected(self, kind: str) -> int:
        """The status of the cell."""
        cell = SURFACES[self.surface][kind]
        if isinstance(cell, int):
            return cell
        return {OWNER: self.owner, STRANGER: self.stranger}.get(cell, 403)

    def sentence(self, kind: str) -> str:
        """How the error of the cell begins, where it matters which refusal it is."""
        return SENTENCES.get(str(SURFACES[self.surface][kind]), "")

    def path(self, things: dict[str, str]) -> str:
        """The path with the owner's things in it."""
        path = self.rule
        for name, value in things.items():
            path = path.replace(f"<{name}>", value)
        return path + self.query

    def content(self, things: dict[str, str]) -> Any:
        """The body with the owner's things in it."""
        if not isinstance(self.body, dict):
            return self.body
        return {name: things.get(str(value)[1:-1], value) for name, value in self.body.items()}


def _sandbox(method: str, action: str, owner: int, body: Any = None, query: str = "") -> Row:
    return Row("api", method, f"/v1/sandboxes/<sandbox_id>{action}", "sandbox", owner, 403, body,
               query=query)


TABLE = (
    Row("api", "POST", "/v1/sandboxes", "sandbox", 400, 400, {"ports": "none"}),
    Row("api", "GET", "/v1/sandboxes", "sandbox", 200, 200),
    _sandbox("GET", "", 200),
    _sandbox("GET", "/usage", 200),
    _sandbox("DELETE", "", 200),
    _sandbox("POST", "/hibernate", 409),
    _sandbox("POST", "/pause", 409),
    _sandbox("POST", "/wake", 409),
    _sandbox("POST", "/resume", 409),
    _sandbox("POST", "/extend", 409),
    _sandbox("POST", "/snapshot", 409),
    _sandbox("POST", "/filesystem-snapshot", 409),
    _sandbox("POST", "/tarball", 409),
    _sandbox("POST", "/fork", 409),
    Row("api", "POST", "/v1/sandboxes/fork", "sandbox", 421, 403, {"snapshotId": "<snapshot_id>"},
        {"X-Svc-Node": "nowhere"}),
    _sandbox("POST", "/exec", 409, {"cmd": "true"}),
    _sandbox("POST", "/files", 409, [{"path": "/tmp/x", "content": ""}]),
    _sandbox("GET", "/files", 409, query="?path=/etc/hostname"),
    _sandbox("PUT", "/uploads/<rest:path>", 409),
    _sandbox("GET", "/url/<port>", 409),
    _sandbox("GET", "/disk", 409),
    _sandbox("GET", "/shell", 426),
    _sandbox("PATCH", "/disk", 409),
    Row("api", "GET", "/v1/snapshots", "sandbox", 200, 200),
    Row("api", "GET", "/v1/snapshots/<snapshot_id>", "sandbox", 200, 403),
    Row("api", "DELETE", "/v1/snapshots/<snapshot_id>", "sandbox", 409, 403),
    Row("api", "GET", "/v1/usage/llm", "sandbox", 200, 200),
    Row("api", "POST", "/v1/api-keys", "keys", 400, 400, {"name": " "}),
    Row("api", "GET", "/v1/api-keys", "keys", 200, 200),
    Row("api", "DELETE", "/v1/api-keys/<key_id>", "keys", 200, 403),
    Row("api", "POST", "/v1/templates/<template_id>/latest", "templates", 400, 400, {}),
    Row("api", "GET", "/v1/templates/<template_id>/latest", "templates", 404, 404),
    Row("api", "DELETE", "/v1/templates/<template_id>/latest", "templates", 404, 404),
    Row("api", "POST", "/v1/deploys", "publishing", 404, 404,
        {"slug": "shop", "snapshotId": "snap_x", "runId": "r"}),
    Row("api", "GET", "/v1/deploys/<slug>", "services", 404, 404),
    Row("api", "GET", "/v1/deploys/<slug>/log", "services", 404, 404),
    Row("api", "DELETE", "/v1/deploys/<slug>", "publishing", 404, 404),
    Row("api", "GET", "/v1/deploys", "publishing", 200, 200),
    Row("api", "GET", "/v1/deploys/<slug>/logs", "services", 404, 404),
    Row("api", "POST", "/v1/deploys/<slug>/rollback", "publishing", 404, 404, {"runId": "r"}),
    Row("api", "GET", "/v1/deploys/<slug>/variables", "publishing", 404, 404),
    Row("api", "PUT", "/v1/deploys/<slug>/variables/<variable>", "publishing", 404, 404,
        {"value": "x"}),
    Row("api", "DELETE", "/v1/deploys/<slug>/variables/<variable>", "publishing", 404, 404),
    Row("api", "GET", "/v1/models", "services", 404, 404),
    Row("api", "POST", "/v1/messages", "services", 404, 404, {}),
    Row("api", "GET", "/health", "public", 200, 200),
    Row("api", "GET", "/openapi.json", "public", 200, 200),
    Row("api", "GET", "/docs", "public", 200, 200),
    Row("identity", "GET", "/openapi.json", "public", 200, 200),
    Row("identity", "GET", "/docs", "public", 200, 200),
    Row("identity", "POST", "/login", "public", 400, 400, {}),
    Row("identity", "POST", "/token", "session", 200, 200, {"appId": "dashboard"}),
    Row("identity", "GET", "/.well-known/jwks.json", "public", 200, 200),
    Row("identity", "GET", "/tokens/revoked", "public", 200, 200),
    Row("identity", "GET", "/health", "public", 200, 200),
    Row("identity", "POST", "/admin/service-token/revoke", "admin", 404, 404, {"jti": "unknown"}),
    # Last, because it ends the session it is called with.
    Row("identity", "POST", "/logout", "public", 204, 204),
)
# The first row of each surface and host. A bad credential is refused before the route is looked at,
# so the real processes are asked with all of them on these rows only.
FIRST_ROWS = tuple({(row.host, row.surface): row for row in reversed(TABLE)}.values())
CELLS = [(row, kind) for row in TABLE for kind in (KINDS if row in FIRST_ROWS else GOOD)]
