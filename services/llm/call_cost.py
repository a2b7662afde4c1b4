"""What a call costs: US dollars per million tokens, in whole units, so that sums are exact.

A price is in millionths of a dollar per million tokens, so a token times a price is in
`COST_UNITS`ths of a dollar. Only what is shown is rounded.
"""
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from decimal import Decimal

_MILLIONTHS = 1_000_000
COST_UNITS = _MILLIONTHS * 1_000_000
# What providers put behind a model's name to say which edition it is: -20250929, -2025-08-07,
# -latest, @20250929.
_EDITION = re.compile(r"(?:[-@](?:\d{8}|\d{4}-\d{2}-\d{2}|latest))$")


@dataclass(frozen=True)
class Price:
    """Millionths of a dollar per million tokens: of input that was not in a cache, of input read
    from one, of input written to one, and of output."""

    input: int
    cached_input: int
    cache_write: int
    output: int

    def to_json(self) -> dict[str, int]:
        """A form for a JSON column; `Price(**...)` reads it back."""
        return asdict(self)


@dataclass(frozen=True)
class Usage:
    """Tokens of a call. The three kinds of input exclude each other: `input` is what was neither
    read from a cache nor written to one. `reasoning` is a part of `output`."""

    input: int = 0
    output: int = 0
    cached: int = 0
    cache_write: int = 0
    reasoning: int = 0

    @property
    def total(self) -> int:
        """All tokens, as limits count them."""
        return self.input + self.cached + self.cache_write + self.output


def cost_of(price: Price | None, usage: Usage) -> int | None:
    """What `usage` costs, in the unit of this module; None where there is no price."""
    if price is None:
        return None
    return (usage.input * price.input + usage.cached * price.cached_input
            + usage.cache_write * price.cache_write + usage.output * price.output)


def find_price(prices: Mapping[str, Price], upstream: str, model: str) -> Price | None:
    """The price of a model at an upstream: its own there, else the model's, else that of the model
    without the date of its edition."""
    plain = _EDITION.sub("", model)
    names = (f"{upstream}/{model}", f"{upstream}/{plain}", model, plain)
    return next((prices[name] for name in names if name in prices), None)


def dollars(cost: Decimal | int) -> float:
    """A cost in US dollars, rounded to millionths, as it is shown."""
    return round(float(Decimal(cost) / COST_UNITS), 6)


def cost_units(amount: Decimal) -> int:
    """An amount of US dollars in the unit of this module."""
    return int(amount * COST_UNITS)


def price_units(amount: Decimal) -> int:
    """US dollars per million tokens as a number of `Price`."""
    return int(amount * _MILLIONTHS)
