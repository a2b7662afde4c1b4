"""What a call costs: exact sums, the four kinds of tokens, and the names that have a price."""
from datetime import date
from decimal import Decimal

import pytest

from services.llm.call_cost import Price, Usage, cost_of, cost_units, dollars, find_price
from services.llm.model_list_prices import AS_OF, DEFAULT_PRICES

PRICE = Price(3_000_000, 300_000, 3_750_000, 15_000_000)
NEAR = Price(0, 0, 0, 0)


@pytest.mark.parametrize(("usage", "cost"), [
    (Usage(), "0"),
    (Usage(input=1_000_000), "3"),
    (Usage(output=1_000_000), "15"),
    (Usage(output=1_000_000, reasoning=900_000), "15"),
    (Usage(cached=1_000_000), "0.3"),
    (Usage(cache_write=1_000_000), "3.75"),
    (Usage(input=1, output=1, cached=1, cache_write=1), "0.00002205"),
])
def test_a_cost_is_exact(usage, cost):
    assert cost_of(PRICE, usage) == cost_units(Decimal(cost))


def test_a_model_without_a_price_costs_nothing_known():
    assert cost_of(None, Usage(input=5)) is None


def test_a_sum_of_costs_is_what_the_sum_of_tokens_costs():
    parts = [Usage(input=number, output=number % 7) for number in range(1000)]
    whole = Usage(input=sum(part.input for part in parts), output=sum(p.output for p in parts))
    assert sum(cost_of(PRICE, part) for part in parts) == cost_of(PRICE, whole)
    assert dollars(cost_of(PRICE, Usage(input=1_234_567))) == 3.703701


def test_all_tokens_count_for_a_limit_and_reasoning_once():
    assert Usage(input=1, output=10, cached=100, cache_write=1000, reasoning=9).total == 1111


@pytest.mark.parametrize(("upstream", "model", "found"), [
    ("a", "m", PRICE), ("near", "m", NEAR), ("a", "m-20250929", PRICE),
    ("a", "m-2025-09-29", PRICE),
    ("a", "m@20250929", PRICE), ("a", "m-latest", PRICE), ("near", "m-latest", NEAR),
    ("a", "m-mini", None), ("a", "x", None), ("a", "", None), ("a", "m-2025", None),
])
def test_which_price_a_model_has(upstream, model, found):
    assert find_price({"m": PRICE, "near/m": NEAR}, upstream, model) == found


def test_the_default_table_has_a_day_and_figures_that_make_sense():
    assert date.fromisoformat(AS_OF) and len(DEFAULT_PRICES) > 50
    for name, price in DEFAULT_PRICES.items():
        assert 0 < price.cached_input <= price.input <= price.output, name
        assert price.input <= price.cache_write <= 2 * price.input, name
    assert find_price(DEFAULT_PRICES, "x", "claude-sonnet-4-5-20250929") == PRICE
