"""Rows of calls on a real Postgres: each call counted once, whoever ends it and however often."""
import asyncio
import threading
from datetime import timedelta

import pytest

from app.guest_gateway.llm.calls import Calls
from app.guest_gateway.rows import Rows
from models.database import DatabaseUnavailable, connection, now
from models.usage import LlmCall, LlmTally
from services.llm import call_rows, totals
from services.llm.call_rows import Progress
from services.llm.configured.upstreams import Target
from services.llm.totals import Figures
from tests.rows.llm import FAR, FREE, PRICED, begin, call_row, config, finish, new_caller
from tests.stack.database import set_back
from tests.stack.waiting import until

pytestmark = pytest.mark.usefixtures("fresh_rows")
# In the unit of services.llm.call_cost.
INPUT, CACHED, WRITTEN, OUTPUT = 1_000_000, 100_000, 2_000_000, 10_000_000


@pytest.fixture
def caller():
    return new_caller()


def make_stale(*call_ids):
    with connection():
        LlmCall.update(seen_at=now() - timedelta(minutes=5)).where(
            LlmCall.id.in_(call_ids)).execute()


def today(caller):
    return totals.of_day(caller.owner_id, totals.day_of(now()))


def calls_by_model(caller):
    """Of its tallies by model, once they have been summed up."""
    with connection():
        rows = LlmTally.select().where(
            (LlmTally.owner_id == caller.owner_id) & (LlmTally.model != ""))
        return {row.model: row.calls for row in rows}


def test_a_call_has_a_row_from_its_beginning(caller):
    call_id = begin(caller, max_output_tokens=30)
    row = call_row(call_id)
    assert (row.owner_id, row.sandbox_id, row.gateway) == (caller.owner_id, caller.sandbox_id, "g1")
    assert (row.protocol, row.upstream, row.model_asked, row.model_used) == (
        "openai", "near", "asked", "priced")
    assert (row.reserved_tokens, row.estimated_input) == (130, 100)
    assert row.reserved_cost == 100 * INPUT + 30 * OUTPUT
    assert row.ended_at is None and row.cost is None and row.complete is None
    assert today(caller) == Figures(), "only what has ended is counted"


def test_its_end_is_exact_and_in_every_total(caller):
    call_id = begin(caller)
    tokens = {"input": 11, "output": 7, "cached": 5, "cache_write": 3, "reasoning": 2}
    assert finish(call_id, **tokens)
    row = call_row(call_id)
    cost = 11 * INPUT + 7 * OUTPUT + 5 * CACHED + 3 * WRITTEN
    assert (row.input_tokens, row.output_tokens, row.cached_tokens, row.cache_write_tokens,
            row.reasoning_tokens, row.cost, row.complete, row.status) == (
                11, 7, 5, 3, 2, cost, True, 200)
    figures = Figures(1, 0, 0, 11, 7, 5, 3, 2, cost)
    assert today(caller) == totals.of_owner(caller.owner_id) == figures
    assert totals.of_sandbox(caller.owner_id, caller.sandbox_id) == figures


def test_a_second_end_changes_nothing(caller):
    call_id = begin(caller)
    assert finish(call_id, input=5) and not finish(call_id, input=500)
    assert call_row(call_id).input_tokens == 5 == today(caller).input_tokens
    assert not finish(10**12, input=1), "nor does the end of no call"


@pytest.mark.parametrize("is_lost", [False, True])
def test_what_the_database_forgets_in_a_crash_leads_no_end_to_another_call(caller, is_lost):
    """It may forget which numbers it has given, and the row as well."""
    set_back("llm_calls")
    first = begin(caller)
    if is_lost:
        with connection():
            LlmCall.delete().where(LlmCall.id == first).execute()
    set_back("llm_calls")
    other = new_caller()
    second = begin(other)
    assert finish(first, input=5) is not is_lost
    assert call_row(second).ended_at is None and today(other) == Figures()
    assert finish(second, input=7) and today(other).input_tokens == 7


def test_many_ends_at_once_count_once(caller):
    call_id, won = begin(caller), []
    racers = [threading.Thread(target=lambda: won.append(finish(call_id, input=5)))
              for _ in range(8)]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join()
    assert sorted(won) == [False] * 7 + [True] and today(caller).calls == 1


def test_it_is_priced_by_where_it_went_in_the_end(caller):
    elsewhere = begin(caller, PRICED)
    assert finish(elsewhere, FREE, input=9)
    row = call_row(elsewhere)
    assert (row.upstream, row.model_used, row.cost, row.input_tokens) == (
        "far", "unpriced", None, 9)
    assert today(caller) == Figures(1, 0, 1, 9), "tokens counted, cost unknown"


def test_what_a_killed_gateway_leaves_is_ended_by_estimate_once(caller):
    silent, lively, fresh = (begin(caller, is_stream=True) for _ in range(3))
    call_rows.report_progress([Progress(silent, 40, now()), Progress(lively, 5)])
    make_stale(silent)
    assert call_rows.close_abandoned() == 1 and call_rows.close_abandoned() == 0
    row = call_row(silent)
    assert (row.input_tokens, row.output_tokens, row.complete, row.swept, row.status) == (
        100, 40, False, True, None)
    assert row.cost == 100 * INPUT + 40 * OUTPUT and row.first_byte_at is not None
    assert today(caller) == Figures(1, 1, 0, 100, 40, cost=int(row.cost))
    assert call_row(lively).ended_at is None and call_row(fresh).ended_at is None
    assert finish(lively, input=1) and finish(fresh, input=1)


@pytest.mark.parametrize(("is_stream", "owed"), [(True, 0), (False, 30)])
def test_a_killed_gateway_may_have_had_all_of_an_answer_that_is_no_stream(
        caller, is_stream, owed):
    call_id = begin(caller, max_output_tokens=30, is_stream=is_stream)
    make_stale(call_id)
    assert call_rows.close_abandoned() == 1 and call_row(call_id).output_tokens == owed


def test_a_gateway_that_begins_again_ends_all_that_it_left(caller, monkeypatch):
    monkeypatch.setattr(call_rows, "_BATCH", 3)
    mine, other = [begin(caller, gateway="g7") for _ in range(9)], begin(caller, gateway="g8")
    began_at = now()
    begun_since = begin(caller, gateway="g7")
    call_rows.close_left("g7", began_at)
    assert all(call_row(call_id).swept for call_id in mine)
    assert call_row(other).ended_at is None and call_row(begun_since).ended_at is None


def test_it_tries_until_the_database_answers(caller, monkeypatch):
    left, close, refused = begin(caller, gateway="g7"), call_rows.close_left, []

    def away_at_first(*arguments):
        if len(refused) < 2:
            refused.append(arguments)
            raise DatabaseUnavailable[0]("away")
        close(*arguments)

    monkeypatch.setattr(call_rows, "close_left", away_at_first)
    monkeypatch.setattr(call_rows, "REPORT_EVERY_S", 0.01)

    async def run():
        reporting = asyncio.create_task(Calls("g7", Rows()).keep_reporting())
        await asyncio.to_thread(until, lambda: call_row(left).swept)
        reporting.cancel()

    asyncio.run(run())
    assert len(refused) == 2


def test_a_gateway_that_lived_after_all_has_the_last_word(caller):
    call_id = begin(caller)
    call_rows.report_progress([Progress(call_id, 1000)])
    make_stale(call_id)
    call_rows.close_abandoned()
    assert finish(call_id, FREE, input=3, output=2)
    assert today(caller) == totals.of_owner(caller.owner_id) == Figures(1, 0, 1, 3, 2)
    assert totals.of_sandbox(caller.owner_id, caller.sandbox_id) == Figures(1, 0, 1, 3, 2)
    assert not call_row(call_id).swept and not finish(call_id, input=9)


def test_progress_of_an_ended_call_changes_nothing(caller):
    call_id = begin(caller)
    finish(call_id, output=3)
    call_rows.report_progress([Progress(call_id, 50)])
    call_rows.report_progress([])
    assert call_row(call_id).output_tokens == 3


def test_sums_are_the_same_when_summed_up_and_meanwhile(caller):
    for number in range(20):
        finish(begin(caller, FREE if number % 2 else PRICED), FREE if number % 2 else PRICED,
               input=number, output=1)
    before = today(caller), totals.of_sandbox(caller.owner_id, caller.sandbox_id)
    totals.sum_up()
    with connection():
        rows = LlmTally.select().where(LlmTally.owner_id == caller.owner_id)
        kept = sorted((row.sandbox_id, row.model, row.calls, row.is_sum) for row in rows)
    assert kept == sorted([("", "", 20, True), ("", "priced", 10, True), ("", "unpriced", 10, True),
                           (caller.sandbox_id, "", 20, True)])
    finish(begin(caller), input=1)
    totals.sum_up()
    after = today(caller)
    assert after.calls == 21 and after.input_tokens == before[0].input_tokens + 1
    assert totals.of_owner(caller.owner_id) == after
    assert before[1].calls == 20


def test_more_sums_than_a_batch_are_all_put_together(caller, monkeypatch):
    monkeypatch.setattr(totals, "_KEYS", 2)
    for target in (FREE, PRICED) * 2:
        finish(begin(caller, target), target, input=1)
    totals.sum_up()
    with connection():
        assert not LlmTally.select().where(~LlmTally.is_sum).exists()
    assert today(caller).calls == 4


def test_names_that_callers_make_up_leave_one_tally(caller):
    mapped = Target(FAR, "mapped")
    llm = config(models={"alias": (mapped,)}, prefixes={"claude-": FAR})
    for target, used in (*((Target(FAR, f"claude-{number}"), 0) for number in range(3)),
                         (Target(FAR, "used"), 1), (mapped, 0), (PRICED, 0)):
        call_id = begin(caller, target, llm)
        finish(call_id, target, llm, status=200 if used else 404, input=used)
    assert call_row(call_id).model_used == "priced"
    for target, status in (*((Target(FAR, f"claude-left-{number}"), None) for number in range(3)),
                           (Target(FAR, "refused"), 404), (mapped, None)):
        finish(begin(caller, target, llm), target, llm, status, complete=False, input=100)
    totals.sum_up()
    assert calls_by_model(caller) == {"mapped": 2, "other": 7, "priced": 1, "used": 1}
    assert today(caller) == Figures(11, 5, 10, 501), "what is estimated counts"


def test_nor_do_they_where_a_gateway_was_killed(caller):
    left, answered = (begin(caller, Target(FAR, f"claude-{number}")) for number in range(2))
    call_rows.report_progress([Progress(answered, 5, now())])
    make_stale(left, answered)
    assert call_rows.close_abandoned() == 2
    totals.sum_up()
    assert calls_by_model(caller) == {"other": 1, "claude-1": 1}
    for number, call_id in enumerate((left, answered)):
        assert finish(call_id, Target(FAR, f"claude-{number}"), input=1)
    totals.sum_up()
    assert calls_by_model(caller) == {"other": 0, "claude-0": 1, "claude-1": 1}
    assert today(caller) == Figures(2, 0, 2, 2)


def test_rows_go_after_their_days_and_totals_stay(caller):
    old, young, under_way = begin(caller), begin(caller), begin(caller)
    finish(old, input=4)
    finish(young, input=5)
    with connection():
        LlmCall.update(ended_at=now() - timedelta(days=31)).where(LlmCall.id == old).execute()
    assert call_rows.forget_old(0) == 0
    assert call_rows.forget_old(30) == 1
    with connection():
        kept = {row.id for row in LlmCall.select().where(LlmCall.owner_id == caller.owner_id)}
    assert kept == {young, under_way} and totals.of_owner(caller.owner_id).input_tokens == 9


def test_no_column_holds_a_text_of_the_call():
    texts = {name for name, field in LlmCall._meta.fields.items()
             if field.field_type in ("TEXT", "JSONB")}
    assert texts == {"sandbox_id", "owner_id", "gateway", "protocol", "upstream", "model_asked",
                     "model_used", "price"}
