"""What a route takes and answers, said on the route: the OpenAPI document, its page and the tests
are made of this.

Declare a new route like this, below `@accepts`::

    @routes.post("/<sandbox_id>/wake")
    @accepts(API_KEY, USER_JWT, SERVICE)
    @answers(200, SandboxAnswer, body=WakeBody, errors=(409, 421))

- The first two arguments are the status and the answer (`app/schemas/`) of success; no answer is no
  body, and a text such as `"text/html"` is a body of that type. A route with two successes has the
  decorator twice.
- `body` is the schema that `bodies.load` gets, `ListOf(schema, most)` for `bodies.load_list`, or a
  media type such as `"application/octet-stream"` for a raw body; `query` is the schema of
  `bodies.load_query`.
- `errors` are the statuses that only this route knows: 402, 404 for what is named in the body, 409,
  421, 429, 501. 421 also says that the route takes `X-Svc-Node`. What follows from the rest is
  added by `error_statuses`: 400, 413, 414 and 415 from body and query, 401 and 403 from
  credentials, 404 from a `<name>` in the path, 429 on sandbox routes, 503.
- `example` is a body that works, for the page.

`tests/unit/app/test_openapi_document.py` fails for a route that forgets this or says something else
than its code does.
"""
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from marshmallow import Schema

from app.http.credentials import PUBLIC, accepted_by
from app.http.rate_limits import PREFIX as LIMITED
from app.schemas.answers import Answer

View = TypeVar("View", bound=Callable[..., Any])
# What the contract's Errors and docs/api.md say of each status.
MEANINGS: Mapping[int, str] = {
    400: "The body or a parameter breaks a rule; the text names the field.",
    401: "No credential, or one that is unknown, malformed, revoked or expired.",
    402: "The plan does not include this, or the compute credit of this month is used up.",
    403: (
        "The resource is somebody else's, or the credential is of a kind that this route does not"
        " take."
    ),
    404: "There is no such resource.",
    409: "The state does not allow this, or the idempotency key was used with another request.",
    413: "The body has more bytes than the route takes.",
    414: "The address is longer than 8190 bytes.",
    415: "The body is not declared as `application/json`.",
    421: "The node that `X-Svc-Node` names does not hold the resource.",
    429: "Too many requests of this kind; `Retry-After` says when there is room again.",
    501: "The work of this route is not in this version.",
    503: (
        "No capacity, or something the service depends on does not answer; trying again later may"
        " work."
    ),
}


@dataclass(frozen=True)
class ListOf:
    """A body that is a list of at most `most` items."""

    item: type[Schema]
    most: int


Content = type[Answer] | str | None
Request = type[Schema] | ListOf | str | None


@dataclass
class Answers:
    """Everything a view declared."""

    successes: dict[int, Content] = field(default_factory=dict)
    body: Request = None
    query: type[Schema] | None = None
    errors: frozenset[int] = frozenset()
    example: Any = None


def answers(status: int, content: Content = None, *, body: Request = None,
            query: type[Schema] | None = None, errors: Iterable[int] = (),
            example: Any = None) -> Callable[[View], View]:
    """Declare what a view takes and answers; see the module. A status from 400 on goes to the
    errors."""

    def mark(view: View) -> View:
        declared = answers_of(view) or Answers()
        if status >= 400:
            declared.errors |= {status}
        else:
            declared.successes[status] = content
        declared.body, declared.query = body or declared.body, query or declared.query
        declared.errors |= frozenset(errors)
        declared.example = declared.example if example is None else example
        setattr(view, "answered", declared)
        return view

    return mark


def answers_of(view: Any) -> Answers | None:
    """What a view declared, if anything."""
    return getattr(view, "answered", None)


def error_statuses(rule: str, view: Any) -> list[int]:
    """Every status of an error that a request to `rule` can get, 500 aside, in order."""
    declared = answers_of(view) or Answers()
    statuses = set(declared.errors)
    if PUBLIC not in accepted_by(view):
        statuses |= {401, 403, 503}
    if declared.body is not None:
        statuses |= {400, 413} if isinstance(declared.body, str) else {400, 413, 415}
    if declared.query is not None:
        statuses |= {400, 414}
    if 421 in statuses:
        statuses.add(400)
    if "<" in rule:
        statuses.add(404)
    if rule.startswith(LIMITED):
        statuses.add(429)
    return sorted(statuses)
