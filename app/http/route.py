"""A route says once what it takes and answers; it is read, run, answered and described by that.

    @route(routes, "POST /<sandbox_id>/wake", "POST /<sandbox_id>/resume", accepts=ACCOUNTS,
           answers=SandboxAnswer, body=WakeBody, errors=(409,), admission=LIFECYCLE)
    def wake(caller: Caller, sandbox_id: str, body: Json) -> SandboxView:

1. A view gets the parts of its path and, by name, whichever of these it has a parameter for:
   `caller` (with the node it pins the call to; then 421 is one of the errors), `owner`,
   `namespace`, `account` (what the call may hold in memory), `wait_s` (of `Prefer: wait`), `body`
   and `query` as their schemas load them, and `response`, to set a header, a cookie or the status.
2. What it returns is dumped by `answers` and sent with `status`; a Response goes as it is.
3. `body` is a schema, `ListOf` one, or a media type for a raw body, which the view reads itself.
   A JSON body has at most `body_bytes` bytes; what is longer is refused before it is parsed.
   `answers` is a schema of `app/schemas/`, a media type, or None for no body. `also` holds further
   successes. A route whose `status` is an error never succeeds.
4. `errors` are the statuses that only this route knows: 402, 404 for what is named in the body,
   409, 429. `Route.error_statuses` adds what follows from the rest.
5. A query parameter that the route does not know is refused, before its body is read. Not looked
   at are those of a route that has no `query` and is public or never succeeds.
6. A route that does not say which credentials it `accepts` accepts none. `about` is what its view
   first looks up of the sandbox in its path (`app/http/credentials.py`).
"""
import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

from flask import Blueprint, Response, request
from marshmallow import Schema

from app.http import admission as classes
from app.http.bodies import reading
from app.http.bodies.buffers import current_account
from app.http.bodies.json_text import fill
from app.http.bodies.limits import JSON_BYTES
from app.http.credentials import PUBLIC
from app.http.credentials import accepts as accepting
from app.http.credentials import current_caller, current_namespace, current_owner
from app.http.preferences import current_wait_s
from app.http.rate_limits import PREFIX as LIMITED
from app.schemas import fields
from app.schemas.answers import Answer, answer_of
from models.row import Lookup
from services.accounts.principals import Credential

View = TypeVar("View", bound=Callable[..., Any])


@dataclass(frozen=True)
class ListOf:
    """A body that is a list of at most `most` items."""

    item: type[Schema]
    most: int


Content = type[Answer] | str | None
Body = type[Schema] | ListOf | str | None
_CALLERS: Mapping[str, Callable[[], Any]] = {
    "caller": current_caller, "owner": current_owner, "namespace": current_namespace,
    "account": current_account, "wait_s": current_wait_s
}


@dataclass(frozen=True)
class Route:
    """Everything a route declares; `takes` are the parameters of its view."""

    accepts: frozenset[Credential]
    successes: Mapping[int, Content]
    body: Body
    body_bytes: int
    query: type[Schema] | None
    errors: frozenset[int]
    example: Any
    takes: frozenset[str] = field(default_factory=frozenset)

    @property
    def may_be_pinned(self) -> bool:
        """Whether a call may be pinned to a node with `X-Svc-Node`."""
        return "caller" in self.takes

    @property
    def may_wait(self) -> bool:
        """Whether a client may prefer to wait, with `Prefer: wait=N`."""
        return "wait_s" in self.takes

    @property
    def parameters(self) -> type[Schema] | None:
        """What the query has to be; None if it is not looked at."""
        if self.query is None and self.successes and PUBLIC not in self.accepts:
            return fields.Body
        return self.query

    def error_statuses(self, rule: str) -> list[int]:
        """Every status of an error that a request to `rule` can get, 500 aside, in order."""
        statuses = set(self.errors)
        if PUBLIC not in self.accepts:
            statuses |= {401, 403, 503}
        if self.body is not None:
            statuses |= {400, 413} if isinstance(self.body, str) else {400, 413, 415}
        if self.parameters is not None:
            statuses.add(400)
        if self.query is not None:
            statuses.add(414)
        if self.may_be_pinned:
            statuses |= {400, 421}
        if "<" in rule:
            statuses.add(404)
        if rule.startswith(LIMITED):
            statuses.add(429)
        return sorted(statuses)


def route(blueprint: Blueprint, *rules: str, accepts: Iterable[Credential] = (),
          about: Lookup | None = None, answers: Content = None, status: int = 200,
          also: Mapping[int, Content] | None = None, body: Body = None,
          body_bytes: int = JSON_BYTES, query: type[Schema] | None = None,
          errors: Iterable[int] = (), admission: classes.Admission | None = None,
          example: Any = None, **options: Any) -> Callable[[View], View]:
    """Register a view under each of `rules`, such as `"GET /<sandbox_id>"`; see the module.
    `options` are Flask's for a rule."""

    def register(view: View) -> View:
        successes = {status: answers, **(also or {})} if status < 400 else {}
        failures = {*errors} if status < 400 else {*errors, status}
        declared = Route(frozenset(accepts), successes, body, body_bytes, query,
                         frozenset(failures), example,
                         frozenset(inspect.signature(view).parameters))
        run: Any = accepting(*accepts, about=about)(_runner(view, declared, status, answers))
        run.__name__, run.__doc__, run.__module__ = view.__name__, view.__doc__, view.__module__
        run.route, run.admission = declared, admission
        for rule in rules:
            method, _, path = rule.partition(" ")
            blueprint.add_url_rule(path, view.__name__, run, methods=[method], **options)
        return view

    return register


def route_of(view: Any) -> Route | None:
    """What a view of the url map declares, if anything."""
    return getattr(view, "route", None)


def _runner(view: Callable[..., Any], declared: Route, status: int,
            answers: Content) -> Callable[..., Response]:
    """What Flask calls: collects what the view takes, runs it, and dumps what it returns."""
    readers: dict[str, Callable[[], Any] | None] = {
        name: read for name, read in _CALLERS.items() if name in declared.takes
    }
    readers |= {"query": _query_reader(declared.parameters), "body": _body_reader(declared)}
    dump = answer_of(answers).dump if isinstance(answers, type) else None

    def run(**path: Any) -> Response:
        response = Response(status=status)
        given = {name: read() for name, read in readers.items() if read is not None}
        given["response"] = response
        shown = view(**path, **{name: given[name] for name in given if name in declared.takes})
        if isinstance(shown, Response):
            return shown
        if dump is not None:
            fill(response, dump(shown))
        return response

    return run


def _body_reader(declared: Route) -> Callable[[], Any] | None:
    body, limit_bytes = declared.body, declared.body_bytes
    if isinstance(body, ListOf):
        item, most = body.item(), body.most
        return lambda: reading.load_list(item, limit_bytes, most=most)
    if isinstance(body, type):
        schema = body()
        return lambda: reading.load(schema, limit_bytes)
    return None


def _query_reader(query: type[Schema] | None) -> Callable[[], Any] | None:
    if query is None:
        return None
    schema = query()
    if any(field.required for field in schema.fields.values()):
        return lambda: reading.load_query(schema)
    unasked: dict[str, Any] = schema.load({})  # for most calls, and once and for all
    return lambda: reading.load_query(schema) if request.query_string else dict(unasked)
