"""The query and the answer of what an account used of LLMs."""
from marshmallow import fields

from app.schemas import answers
from app.schemas.answers import Answer
from app.schemas.fields import Described
from app.schemas.paging import PageQuery


class Day(Described, fields.Date):
    """A day as YYYY-MM-DD."""

    default_error_messages = {"invalid": "must be a day, YYYY-MM-DD",
                              "format": "must be a day, YYYY-MM-DD"}

    def __init__(self, about: str, **options: object) -> None:
        super().__init__(about, format="%Y-%m-%d", **options)


class LlmUsageQuery(PageQuery):
    """Which days, both included; without them the last 30."""

    since = Day("The first day (UTC).", data_key="from", load_default=None)
    until = Day("The last day (UTC).", data_key="to", load_default=None)


class LlmUsageEntryAnswer(Answer):
    """What the account used of a model in a day (UTC)."""

    day = answers.Text("YYYY-MM-DD.", show=str)
    model = answers.Text("Its name at the upstream.")
    calls = answers.Count("Calls that have ended.", read="figures.calls")
    incomplete_calls = answers.Count("Calls of them whose tokens are an estimate.",
                                     read="figures.incomplete_calls")
    unpriced_calls = answers.Count("Calls of them whose price is not known.",
                                   read="figures.unpriced_calls")
    input_tokens = answers.Count("Neither read from a cache nor written to one.",
                                 read="figures.input_tokens")
    cached_tokens = answers.Count("Input that was read from a cache.", read="figures.cached_tokens")
    cache_write_tokens = answers.Count("Input that was written to a cache.",
                                       read="figures.cache_write_tokens")
    output_tokens = answers.Count("Reasoning included.", read="figures.output_tokens")
    reasoning_tokens = answers.Count(read="figures.reasoning_tokens")
    cost = answers.Amount("US dollars; `null` if the price of no call is known.", null=True,
                          read="figures.known_cost")


class LlmUsageAnswer(Answer):
    """A page of days and models, newest first, and totals of the range."""

    usage = answers.Inner(LlmUsageEntryAnswer, many=True, read="items")
    total_calls = answers.Count(read="used.calls")
    total_tokens = answers.Count("Input of every kind, and output.", read="used.tokens")
    total_cost = answers.Amount("US dollars; `null` if the price of no call is known.", null=True,
                                read="used.known_cost")
    total = answers.Count()
    limit = answers.Count()
    offset = answers.Count()
