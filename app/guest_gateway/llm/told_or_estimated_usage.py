"""Says what a call used: what its upstream told, and an estimate of what that did not tell.

Where no usage came, an event with text in it is a token at least. An answer that is no stream, or
a stream whose model reasons, says what it used at its end only. If it was not heard to its end it
counts as all that was reserved for it, or as its text if that is more: who leaves it may have heard
all but that. Anthropic's counts are cumulative: the largest of each holds. OpenAI's input includes
what came from a cache, ours does not.
"""
from typing import Any

from services.llm.call_cost import Usage
from services.llm.configured.upstreams import Protocol

_BYTES_PER_TOKEN = 4
_MOST = 2**53


class Counted:
    """The figures of one answer so far, and whether they are the upstream's last."""

    def __init__(self, protocol: Protocol) -> None:
        self._protocol = protocol
        self._figures: dict[str, int] = {}
        self.complete = False
        self.events = self.text_bytes = 0
        # Tokens that count at least, until the end of the answer tells.
        self.reserved_output = 0

    def take(self, usage: Any) -> None:
        """Count a `usage` object of the protocol."""
        if not isinstance(usage, dict):
            return
        read = _of_anthropic if self._protocol is Protocol.ANTHROPIC else _of_openai
        for name, value in read(usage).items():
            self._figures[name] = max(self._figures.get(name, 0), value)

    def ends(self) -> None:
        """The answer has said everything, its usage too if it ever does."""
        self.complete, self.reserved_output = self.is_known, 0

    @property
    def is_known(self) -> bool:
        """Whether any usage came."""
        return bool(self._figures)

    @property
    def estimated_output(self) -> int:
        """Tokens of the text that has passed."""
        return max(self.events, self.text_bytes // _BYTES_PER_TOKEN)

    def usage(self, estimated_input: int) -> Usage:
        """What the upstream said, with estimates for what it did not."""
        figures = {"input": estimated_input, **self._figures} if not self._figures \
            else dict(self._figures)
        if not self.complete:
            figures["output"] = max(figures.get("output", 0), self.estimated_output,
                                    self.reserved_output)
        return Usage(**figures)


def _of_anthropic(usage: dict[str, Any]) -> dict[str, int]:
    names = {"input_tokens": "input", "output_tokens": "output",
             "cache_read_input_tokens": "cached", "cache_creation_input_tokens": "cache_write"}
    return {ours: _count(usage.get(theirs)) for theirs, ours in names.items() if theirs in usage}


def _of_openai(usage: dict[str, Any]) -> dict[str, int]:
    """Chat says prompt and completion, the others input and output."""
    into = _count(usage.get("prompt_tokens", usage.get("input_tokens")))
    out = _count(usage.get("completion_tokens", usage.get("output_tokens")))
    read = usage.get("prompt_tokens_details") or usage.get("input_tokens_details")
    wrote = usage.get("completion_tokens_details") or usage.get("output_tokens_details")
    cached = min(_count(read.get("cached_tokens")), into) if isinstance(read, dict) else 0
    reasoning = _count(wrote.get("reasoning_tokens")) if isinstance(wrote, dict) else 0
    return {"input": into - cached, "cached": cached, "output": out, "reasoning": reasoning}


def _count(value: Any) -> int:
    return min(value, _MOST) if isinstance(value, int) and value > 0 else 0
