"""The LLM proxy on this host: what an account used of it, and the two routes by which services ask
for models (contract, User JWT 3).

The guest gateway answers those two; the API's worker hands it the connections. They come here only
where there is no proxy.
"""
from typing import Any, NoReturn

from flask import Blueprint

from app.http.admission import PROMPT
from app.http.credentials import ACCOUNTS, SERVICE
from app.http.route import route
from app.schemas.llm_usage import LlmUsageAnswer, LlmUsageQuery
from models.users import User
from services.errors import NotFound
from services.llm import usage
from services.llm.usage import UsagePage

routes = Blueprint("llm", __name__, url_prefix="/v1")


@route(routes, "GET /usage/llm", accepts=ACCOUNTS, answers=LlmUsageAnswer, query=LlmUsageQuery,
       admission=PROMPT)
def list_days(owner: User, query: dict[str, Any]) -> UsagePage:
    """What the account's sandboxes used of LLMs, by day and model."""
    return usage.list_days(owner.id, **query)


@route(routes, "GET /models", accepts=(SERVICE,), status=404)
def models() -> NoReturn:
    """The models that may be asked for (docs/llm.md)."""
    raise _no_proxy()


@route(routes, "POST /messages", accepts=(SERVICE,), status=404,
       errors=(400, 402, 413, 429, 503))
def messages() -> NoReturn:
    """Ask a model, in Anthropic's protocol (docs/llm.md); what its upstream refuses is an error
    with the upstream's status, whichever that is."""
    raise _no_proxy()


def _no_proxy() -> NotFound:
    return NotFound("This installation has no LLM proxy.")
