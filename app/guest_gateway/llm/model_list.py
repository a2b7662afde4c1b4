"""The list of models that may be asked for, in a form that clients of both families read."""
from typing import Any

from services.errors import NotFound
from services.llm.configured.upstreams import LlmConfig, Protocol
from services.llm.routing import list_models

_LONG_AGO = "1970-01-01T00:00:00Z"


def model_list(config: LlmConfig, protocol: Protocol | None, path: str) -> dict[str, Any] | None:
    """What the configuration's map offers in `protocol`, or in any, or one of it; None if it offers
    nothing there: then an upstream is asked. Raises NotFound."""
    names = list_models(config, protocol)
    if not names:
        return None
    name = path.removeprefix("/models").removeprefix("/")
    if name:
        if name not in names:
            raise NotFound("The LLM proxy has no such model.")
        return _model(name)
    return {"object": "list", "data": [_model(each) for each in names], "has_more": False,
            "first_id": names[0], "last_id": names[-1]}


def _model(name: str) -> dict[str, Any]:
    return {"id": name, "object": "model", "created": 0, "owned_by": "svc", "type": "model",
            "display_name": name, "created_at": _LONG_AGO}
