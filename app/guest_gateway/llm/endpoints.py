"""What of the model APIs is offered, and how each is passed on."""
import enum
import re
from dataclasses import dataclass

from services.errors import NotFound
from services.llm.configured.upstreams import Protocol


class Body(enum.Enum):
    """What a request carries."""

    NONE = "nothing"
    JSON = "a JSON object"
    FORM = "a form with files"


@dataclass(frozen=True)
class Endpoint:
    """`path` is what comes behind the URL of an upstream. What is `counted` costs tokens."""

    protocol: Protocol
    path: str
    body: Body
    counted: bool = True

    @property
    def says_usage_when_asked(self) -> bool:
        """Whether a stream of it has its usage only if `include_usage` asks for it."""
        return self.path == "/chat/completions"


_OPENAI, _ANTHROPIC = Protocol.OPENAI, Protocol.ANTHROPIC
_POSTS = {
    each.path: each for each in (
        *(Endpoint(_OPENAI, path, Body.JSON) for path in (
            "/chat/completions", "/responses", "/embeddings", "/images/generations",
            "/audio/speech")),
        *(Endpoint(_OPENAI, path, Body.FORM) for path in (
            "/images/edits", "/images/variations", "/audio/transcriptions",
            "/audio/translations")),
        Endpoint(_ANTHROPIC, "/messages", Body.JSON),
        Endpoint(_ANTHROPIC, "/messages/count_tokens", Body.JSON, counted=False),
    )
}
# A name of dots would lead to another place of the upstream.
_SEGMENT = r"/(?!\.+(?:/|\Z))[\w.:@-]{1,200}"
_MODEL = re.compile(f"/models(?:{_SEGMENT}){{0,3}}", re.ASCII)


def find_endpoint(method: str, path: str, *, is_anthropic: bool) -> Endpoint:
    """The endpoint of a request; raises NotFound. `path` may begin with /v1 or not. Both families
    have /models: `is_anthropic` says which is meant."""
    path = path.removeprefix("/v1")
    if method == "POST" and path in _POSTS:
        return _POSTS[path]
    if method in ("GET", "HEAD") and _MODEL.fullmatch(path):
        return Endpoint(_ANTHROPIC if is_anthropic else _OPENAI, path, Body.NONE, counted=False)
    raise NotFound("The LLM proxy has no such route; docs/llm.md lists those that it has.")
