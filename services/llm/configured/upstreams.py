"""What the LLM proxy is told by its configuration: upstreams, models, prices, limits.

Records only; `services/llm/configured/config_file.py` reads and checks them. A key is in no repr.
"""
import enum
from collections.abc import Mapping
from dataclasses import dataclass, field

from services.llm.call_cost import Price


class Protocol(str, enum.Enum):
    """What a call and an upstream speak; nothing is translated from one to the other."""

    OPENAI = "openai"
    ANTHROPIC = "anthropic"


@dataclass(frozen=True)
class Upstream:
    """A provider. `url` is what comes before `/chat/completions`, `/responses`, `/messages` and
    `/models`, without a slash at its end. `silence_s` is how long it may send nothing."""

    name: str
    kind: Protocol
    url: str
    key_header: str
    key: str = field(repr=False)
    connect_s: float = 5.0
    silence_s: float = 600.0

    def key_headers(self) -> dict[str, str]:
        """The header that shows the operator's key; in place of every credential of the guest's."""
        is_bearer = self.key_header.lower() == "authorization"
        return {self.key_header: f"Bearer {self.key}" if is_bearer else self.key}


@dataclass(frozen=True)
class Target:
    """Where a call may go: an upstream, and the model's name there."""

    upstream: Upstream
    model: str


@dataclass(frozen=True)
class Limits:
    """What an owner may use in a day (UTC); None is no limit. `cost` is in the unit of
    `services.llm.call_cost`."""

    requests: int | None = None
    tokens: int | None = None
    cost: int | None = None

    @property
    def is_empty(self) -> bool:
        """True if nothing is limited."""
        return self.requests is self.tokens is self.cost is None


@dataclass(frozen=True)
class LimitTable:
    """Limits by whom they hold for, already put together: an owner's, else the plan's, else
    `default`. Owners are named by id or e-mail address."""

    default: Limits = Limits()
    plans: Mapping[str, Limits] = field(default_factory=dict)
    owners: Mapping[str, Limits] = field(default_factory=dict)


@dataclass(frozen=True)
class FallOver:
    """When a call goes on to its next target: the upstream does not answer, or with one of
    `statuses`, before a byte of its answer was passed on. An upstream that failed is tried last
    for `rest_s`; a call is tried at most `tries` times."""

    statuses: frozenset[int] = frozenset({429, 500, 502, 503, 504, 529})
    rest_s: float = 20.0
    tries: int = 3


@dataclass(frozen=True)
class LlmConfig:
    """All of it. `models` maps a model or an alias to its targets, in the order to try; `prefixes`
    the beginning of a model's name to the upstream that it is passed on to under its own name.
    `prices` are by model, or by `upstream/model`, the default table included."""

    upstreams: Mapping[str, Upstream]
    models: Mapping[str, tuple[Target, ...]] = field(default_factory=dict)
    default_model: str = ""
    prefixes: Mapping[str, Upstream] = field(default_factory=dict)
    prices: Mapping[str, Price] = field(default_factory=dict)
    limits: LimitTable = LimitTable()
    fall_over: FallOver = FallOver()
    reserve_output_tokens: int = 4096

    def knows(self, target: Target) -> bool:
        """Whether the operator, or the table of prices, has named this model. Other names are the
        callers', also those that begin with a prefix."""
        return (any(target in targets for targets in self.models.values())
                or target.model in self.prices
                or f"{target.upstream.name}/{target.model}" in self.prices)

    def first_of_kind(self, protocol: Protocol) -> Upstream | None:
        """The first upstream that speaks `protocol`."""
        return next((one for one in self.upstreams.values() if one.kind is protocol), None)
