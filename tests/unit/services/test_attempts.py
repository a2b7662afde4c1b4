"""Four tries, a pause that grows between them, and no end of them for a stop."""
import pytest

from config.settings import Settings
from models.states import OperationKind
from services.operations import attempts

SETTINGS = Settings(operation_attempts=4)


@pytest.mark.parametrize("number, last, one_too_many", [
    (1, False, False), (3, False, False), (4, True, False), (5, True, True)])
def test_the_fourth_try_is_the_last_and_a_fifth_never_begins(number, last, one_too_many):
    limit = attempts.limit_of(SETTINGS, OperationKind.BOOT)
    assert attempts.is_last(number, limit) is last
    assert attempts.is_one_too_many(number, limit) is one_too_many


def test_a_stop_is_never_given_up():
    limit = attempts.limit_of(SETTINGS, OperationKind.STOP)
    assert not attempts.is_last(10**6, limit) and not attempts.is_one_too_many(10**6, limit)


def test_a_run_is_tried_more_often_when_what_fails_is_outside_of_it():
    assert attempts.limit_of_run(SETTINGS) == 4
    assert attempts.limit_of_run(SETTINGS, from_outside=True) == 20


def test_the_pause_grows_by_a_second_up_to_half_a_minute():
    assert [attempts.pause_s(number) for number in (1, 2, 30, 31, 1000)] == [1, 2, 30, 30, 30]
