"""Says where a call goes: the upstreams to try, in order, and the model's name at each.

1. A model of the configuration's map goes where that says. 2. A name that begins with a prefix of
the configuration (`claude-`) is passed on to that upstream as it is. 3. No name, or one that nobody
knows: the sandbox's `preferredModel`. 4. No name and none preferred: the default model. 5. A name
that nobody knows is passed on to the first upstream that speaks the call's protocol, which answers
for itself. Each step counts only where the upstream speaks the protocol of the call, as nothing is
translated. A call for no model may go to every upstream of its protocol, first to the default
model's. An upstream that has just failed is tried last.
"""
import threading
import time
from collections.abc import Callable, Collection

from services.errors import InvalidRequest, NotFound, Unavailable
from services.llm.callers import LlmCaller
from services.llm.configured.upstreams import LlmConfig, Protocol, Target
from services.llm.switches import RETRY_AFTER_S


class RestingUpstreams:
    """The upstreams that have just failed, as one process has seen it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._until: dict[str, float] = {}
        self._lock = threading.Lock()

    def failed(self, upstream: str, rest_s: float) -> None:
        """An upstream did not answer, or with a failure of its own."""
        with self._lock:
            self._until[upstream] = self._clock() + rest_s

    def answered(self, upstream: str) -> None:
        """An upstream works, so it need not rest."""
        with self._lock:
            self._until.pop(upstream, None)

    def names(self) -> set[str]:
        """Those that rest now."""
        with self._lock:
            return {name for name, until in self._until.items() if until > self._clock()}


def route(config: LlmConfig, caller: LlmCaller, protocol: Protocol, model: str | None,
          resting: Collection[str] = (), switched_off: Collection[str] = ()) -> list[Target]:
    """The targets of a call for `model`, at least one, at most as many as may be tried; `resting`
    are upstreams to try last, `switched_off` those not to try. The model is empty where the call
    names none, and None where it is for no model, such as one for the list of them.

    Raises InvalidRequest if there is no model to ask for, or none that speaks the protocol;
    NotFound if no upstream speaks it at all; Unavailable if all are switched off.
    """
    if config.first_of_kind(protocol) is None:
        raise NotFound(f"No upstream of this LLM proxy speaks the {protocol.value} protocol.")
    found = [target for target in _find(config, caller, protocol, model)
             if target.upstream.name not in switched_off]
    if not found:
        raise Unavailable("The operator has switched off what offers this model.",
                          retry_after_s=RETRY_AFTER_S)
    ordered = sorted(found, key=lambda target: target.upstream.name in resting)
    return ordered[:config.fall_over.tries]


def list_models(config: LlmConfig, protocol: Protocol | None = None) -> list[str]:
    """The models and aliases of the map that can be asked for in `protocol`, by name."""
    return sorted(
        name for name, targets in config.models.items()
        if protocol is None or any(target.upstream.kind is protocol for target in targets))


def _find(config: LlmConfig, caller: LlmCaller, protocol: Protocol,
          model: str | None) -> list[Target]:
    if model is None:
        first = [target.upstream for target in _wished(config, protocol, config.default_model)]
        of_kind = [one for one in config.upstreams.values() if one.kind is protocol]
        return [Target(one, "") for one in dict.fromkeys(first + of_kind)]
    if model in config.models:
        found = _mapped(config, protocol, model)
        if not found:
            raise InvalidRequest(
                f"The model {model} is not offered in the {protocol.value} protocol, and this proxy"
                " translates nothing.")
        return found
    named = _by_prefix(config, protocol, model)
    if named:
        return named
    wishes = [caller.preferred_model, *([config.default_model] if not model else [])]
    for wish in filter(None, wishes):
        if wished := _wished(config, protocol, wish):
            return wished
    passed_on, upstream = model or caller.preferred_model, config.first_of_kind(protocol)
    if not passed_on or upstream is None:
        raise InvalidRequest("Name a model: neither the sandbox nor this proxy has one to use.")
    return [Target(upstream, passed_on)]


def _wished(config: LlmConfig, protocol: Protocol, model: str) -> list[Target]:
    return _mapped(config, protocol, model) or _by_prefix(config, protocol, model)


def _mapped(config: LlmConfig, protocol: Protocol, model: str) -> list[Target]:
    return [target for target in config.models.get(model, ()) if target.upstream.kind is protocol]


def _by_prefix(config: LlmConfig, protocol: Protocol, model: str) -> list[Target]:
    """The upstream of the longest prefix of `model` that speaks the protocol."""
    fitting = [(len(prefix), upstream) for prefix, upstream in config.prefixes.items()
               if model.startswith(prefix) and upstream.kind is protocol]
    if not model or not fitting:
        return []
    return [Target(max(fitting, key=lambda pair: pair[0])[1], model)]
