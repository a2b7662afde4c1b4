"""Reads the file that SVC_LLM_CONFIG names, and checks every line of it before any of it counts.

What is wrong is told in one sentence that names the place and never a value: a value may be a key.
"""
import json
from collections.abc import Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

from marshmallow import ValidationError

from config.settings import SettingsError
from models.states import Plan
from services.llm.call_cost import Price, cost_units, price_units
from services.llm.configured.config_schema import ConfigSchema
from services.llm.configured.upstreams import (
    FallOver,
    Limits,
    LimitTable,
    LlmConfig,
    Protocol,
    Target,
    Upstream,
)
from services.llm.model_list_prices import DEFAULT_PRICES

_MAX_BYTES = 1024 * 1024
_KEY_HEADERS = {Protocol.OPENAI: "Authorization", Protocol.ANTHROPIC: "x-api-key"}


class LlmConfigError(SettingsError):
    """The file cannot be used; the text says why, and holds no key."""


def load_config(path: Path | str) -> LlmConfig:
    """The configuration in the file `path`, and in the key files that it names; raises
    LlmConfigError."""
    path = Path(path)
    try:
        return _build(_read(path), path.parent)
    except ValidationError as error:
        raise LlmConfigError(f"SVC_LLM_CONFIG, {path.name}: {_first(error.messages)}.") from None


def list_files(path: Path | str) -> list[Path]:
    """The file and the key files that it names, as far as it can be read: whoever watches for
    changes looks at these."""
    path = Path(path)
    try:
        upstreams = _read(path)["upstreams"]
    except (LlmConfigError, ValidationError):
        return [path]
    named = [one["key_file"] for one in upstreams if "key_file" in one]
    return [path, *(path.parent / name for name in named)]


def _read(path: Path) -> dict[str, Any]:
    try:
        with path.open("rb") as stream:
            text = stream.read(_MAX_BYTES + 1)
        content = json.loads(text, parse_float=Decimal)
    except OSError as error:
        raise LlmConfigError(
            f"SVC_LLM_CONFIG, {path.name}: cannot be read ({error.strerror}).") from None
    except (ValueError, RecursionError):
        # The parser's own text quotes the file.
        raise LlmConfigError(f"SVC_LLM_CONFIG, {path.name}: is not JSON in UTF-8.") from None
    if not isinstance(content, dict) or len(text) > _MAX_BYTES:
        raise LlmConfigError(
            f"SVC_LLM_CONFIG, {path.name}: is not one JSON object of at most 1 MiB.")
    loaded: dict[str, Any] = ConfigSchema().load(content)
    return loaded


def _build(content: Mapping[str, Any], directory: Path) -> LlmConfig:
    upstreams: dict[str, Upstream] = {}
    for number, entry in enumerate(content["upstreams"]):
        upstream = _upstream(entry, directory, f"upstreams[{number}]")
        if upstream.name in upstreams:
            raise ValidationError({f"upstreams[{number}].name": ["is given twice"]})
        upstreams[upstream.name] = upstream
    models = {name: tuple(_target(upstreams, name, one) for one in targets)
              for name, targets in content["models"].items()}
    prefixes = {prefix: _named(upstreams, name, f"prefixes.{prefix}")
                for prefix, name in content.get("prefixes", _prefixes(upstreams)).items()}
    prices = {name: Price(**{kind: price_units(amount) for kind, amount in price.items()})
              for name, price in content["prices"].items()}
    for name in prices:
        if name in models and name not in {target.model for target in models[name]}:
            raise ValidationError({f"prices.{name}": [
                "would never count: prices go by what a model is called at its upstream"]})
    return LlmConfig(
        upstreams, models, content["default_model"], prefixes, {**DEFAULT_PRICES, **prices},
        _limits(content["limits"]), _fallback_rule(content["fall_over"]),
        content["reserve_output_tokens"])


def _upstream(entry: Mapping[str, Any], directory: Path, where: str) -> Upstream:
    kind = Protocol(entry["kind"])
    return Upstream(
        name=entry["name"], kind=kind, url=entry["url"],
        key_header=entry.get("key_header", _KEY_HEADERS[kind]),
        key=_key(entry, directory, where), connect_s=entry["connect_s"],
        silence_s=entry["silence_s"])


def _key(entry: Mapping[str, Any], directory: Path, where: str) -> str:
    key: str = entry.get("key", "")
    if ("key" in entry) == ("key_file" in entry):
        raise ValidationError({where: ["needs a key or a keyFile, one of them"]})
    if "key_file" in entry:
        try:
            key = (directory / entry["key_file"]).read_text().strip()
        except (OSError, ValueError):
            raise ValidationError({f"{where}.keyFile": ["cannot be read"]}) from None
    if not key or not key.isascii() or not key.isprintable() or " " in key:
        raise ValidationError({f"{where}.key": ["is empty or no key"]})
    return key


def _prefixes(upstreams: Mapping[str, Upstream]) -> dict[str, str]:
    """Names that begin with `claude-` are the first Anthropic upstream's, unless the file says."""
    anthropic = (one.name for one in upstreams.values() if one.kind is Protocol.ANTHROPIC)
    return {"claude-": name for name in list(anthropic)[:1]}


def _target(upstreams: Mapping[str, Upstream], model: str, entry: Mapping[str, str]) -> Target:
    return Target(_named(upstreams, entry["upstream"], f"models.{model}"), entry["model"] or model)


def _named(upstreams: Mapping[str, Upstream], name: str, where: str) -> Upstream:
    if name not in upstreams:
        raise ValidationError({where: ["names an upstream that is not in upstreams"]})
    return upstreams[name]


def _fallback_rule(content: Mapping[str, Any]) -> FallOver:
    given = dict(content)
    if "statuses" in given:
        given["statuses"] = frozenset(given["statuses"])
    return FallOver(**given)


def _limits(content: Mapping[str, Any]) -> LimitTable:
    unknown = sorted(set(content["plans"]) - {plan.value for plan in Plan})
    if unknown:
        raise ValidationError({"limits.plans": [f"names {', '.join(unknown)}, which is no plan"]})
    default = content["default"]
    return LimitTable(
        _limit(default),
        {name: _limit({**default, **own}) for name, own in content["plans"].items()},
        {name: _limit({**default, **own}) for name, own in _owners(content["owners"]).items()})


def _owners(content: Mapping[str, Any]) -> Mapping[str, Any]:
    """By id, or by address as accounts are stored with it."""
    owners = {name.strip().lower() if "@" in name else name: own for name, own in content.items()}
    if len(owners) < len(content):
        raise ValidationError({"limits.owners": ["names an address twice"]})
    return owners


def _limit(content: Mapping[str, Any]) -> Limits:
    dollars = content.get("usd")
    return Limits(content.get("requests"), content.get("tokens"),
                  None if dollars is None else cost_units(dollars))


def _first(messages: Any, where: str = "") -> str:
    """The first of marshmallow's messages, with its place."""
    if isinstance(messages, list):
        return f"{where} {messages[0]}" if where else str(messages[0])
    key, inner = next(iter(messages.items()))
    if key in ("_schema", "value"):
        return _first(inner, where)
    step = f"[{key}]" if isinstance(key, int) else f".{key}" if where else str(key)
    return _first(inner, where + step)
