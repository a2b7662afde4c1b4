"""What an owner may use in a day, under races too; and the kill switch."""
import threading
import time
from dataclasses import replace
from datetime import timedelta

import pytest

from models.database import connection, now
from models.usage import LlmTally
from services.errors import Forbidden, InsufficientCredit, RateLimited, ServiceError, Unavailable
from services.llm import allowed_calls, switches
from services.llm.call_cost import COST_UNITS, Price
from services.llm.configured.upstreams import Limits, LimitTable
from services.llm.switches import Scope, Switches
from tests.rows.llm import FREE, PRICED, begin, config, finish, new_caller

pytestmark = pytest.mark.usefixtures("fresh_rows")


def limited(**limits):
    return config(limits=LimitTable(default=Limits(**limits)), reserve_output_tokens=100)


@pytest.mark.parametrize(("limits", "used", "error", "words"), [
    ({"requests": 2}, {}, RateLimited, "2 calls"),
    ({"tokens": 1000}, {"input": 999, "output": 1}, RateLimited, "1,000 tokens"),
    ({"cost": 2 * COST_UNITS}, {"output": 200_000}, InsufficientCredit, "2.00 US dollars"),
])
def test_a_limit_that_is_used_up_refuses_until_midnight(limits, used, error, words):
    llm, caller = limited(**limits), new_caller()
    finish(begin(caller, llm=llm), llm=llm)
    finish(begin(caller, llm=llm), llm=llm, **used)
    for ask in (lambda: begin(caller, llm=llm), lambda: allowed_calls.admit(llm, caller)):
        with pytest.raises(error, match=f"The {words} that this account may use") as refused:
            ask()
        assert 0 < refused.value.retry_after_s <= 24 * 3600 + 1
        assert refused.value.status == (402 if error is InsufficientCredit else 429)
    allowed_calls.admit(llm, new_caller())
    with connection():
        LlmTally.update(day=(now() - timedelta(days=1)).date()).where(
            (LlmTally.owner_id == caller.owner_id) & (LlmTally.day == now().date())).execute()
    allowed_calls.admit(llm, caller)


@pytest.mark.parametrize("limits", [
    {"requests": 5}, {"tokens": 1000}, {"cost": 5 * (100 * 1_000_000 + 100 * 10_000_000)},
])
def test_calls_at_the_same_time_do_not_all_see_the_same_room(limits):
    """Each reserves 200 tokens, so 5 of 40 may be under way."""
    llm, caller, begun, refused = limited(**limits), new_caller(), [], []
    start = threading.Barrier(40)

    def call():
        start.wait()
        try:
            begun.append(begin(caller, llm=llm))
        except ServiceError as error:
            refused.append(error)

    racers = [threading.Thread(target=call) for _ in range(40)]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join()
    assert (len(begun), len(refused)) == (5, 35)
    assert all(isinstance(error, RateLimited) and error.retry_after_s == 5 for error in refused)
    finish(begun[0], llm=llm)
    if "requests" not in limits:
        begin(caller, llm=llm)


def test_what_a_call_has_had_counts_when_it_is_more_than_it_reserved():
    from services.llm import call_rows
    llm, caller = limited(tokens=1000), new_caller()
    call_id = begin(caller, llm=llm)
    allowed_calls.admit(llm, caller)
    call_rows.report_progress([call_rows.Progress(call_id, output_tokens=950)])
    with pytest.raises(RateLimited, match="under way"):
        begin(caller, llm=llm)


def test_a_limit_in_money_allows_only_what_has_a_price():
    caller, targets = new_caller(), [FREE, PRICED]
    assert allowed_calls.with_known_cost(limited(tokens=1), caller, targets) == targets
    assert allowed_calls.with_known_cost(limited(cost=1), caller, targets) == [PRICED]
    with pytest.raises(Forbidden, match="no price"):
        allowed_calls.with_known_cost(limited(cost=1), caller, [FREE])
    no_charge = replace(limited(cost=1), prices={"unpriced": Price(0, 0, 0, 0)})
    assert allowed_calls.with_known_cost(no_charge, caller, [FREE]) == [FREE]


def test_whose_limit_holds():
    table = LimitTable(default=Limits(requests=1), plans={"pro": Limits(requests=2)},
                       owners={"usr1": Limits(requests=3), "a@b.test": Limits(requests=4)})
    llm = config(limits=table)
    for caller, limit in ((new_caller(), 1), (new_caller(plan="pro"), 2),
                          (new_caller(plan="pro", owner_email="a@b.test"), 4)):
        assert allowed_calls.limits_of(llm, caller).requests == limit


def test_without_a_limit_nothing_is_refused_and_zero_allows_nothing():
    caller = new_caller()
    for _ in range(3):
        begin(caller)
    allowed_calls.admit(config(), caller)
    with pytest.raises(RateLimited):
        begin(new_caller(), llm=limited(requests=0))


@pytest.fixture
def switched():
    """Switches off for a test; everything is on again after it."""
    def off(scope, name="", reason=""):
        switches.switch_off(scope, name, reason)
        allowed_calls.SWITCHES = Switches()

    yield off
    for row in switches.list_off():
        switches.switch_on(row.scope, row.name)
    allowed_calls.SWITCHES = Switches()


def test_the_switch_ends_new_calls_of_all_or_of_one_owner(switched):
    caller, other = new_caller(), new_caller()
    under_way = begin(caller)
    switched(Scope.OWNER, caller.owner_id, "a leak")
    for ask in (lambda: begin(caller), lambda: allowed_calls.admit(config(), caller)):
        with pytest.raises(Unavailable, match="switched the LLM proxy off for this account"):
            ask()
    begin(other)
    switched(Scope.ALL)
    with pytest.raises(Unavailable, match="The operator has switched the LLM proxy off"):
        begin(other)
    assert finish(under_way, PRICED, input=1), "what is under way ends as it would"


def test_an_upstream_that_is_off_is_known_by_name(switched):
    switched(Scope.UPSTREAM, "near", "its bill")
    assert allowed_calls.SWITCHES.upstreams_off() == {"near"}
    begin(new_caller())
    switched(Scope.UPSTREAM, "near", "another reason")
    assert [(row.scope, row.name, row.reason) for row in switches.list_off()] == [
        (Scope.UPSTREAM, "near", "another reason")]


def test_a_process_knows_of_a_switch_within_seconds(switched):
    mine, caller = Switches(), new_caller()
    mine.check(caller.owner_id)
    switched(Scope.ALL)
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        try:
            mine.check(caller.owner_id)
        except Unavailable:
            break
        time.sleep(0.05)
    else:
        pytest.fail("it never heard of it")
    assert switches.switch_on(Scope.ALL) and not switches.switch_on(Scope.ALL)
