"""Compute credit: how much list-rate cost an account may run up in a calendar month (UTC) and still
make sandboxes.

Off unless `SVC_COMPUTE_CREDIT` names the account's plan. It stops creations only (contract, Errors
402): what runs goes on, and what sleeps can be woken, so that nobody is cut off from their work.
"""
from dataclasses import dataclass
from datetime import date
from decimal import Decimal

import peewee

from config.settings import Settings, SettingsError
from models.database import connection, now
from models.states import Plan
from models.usage import CreditGrant
from models.users import User
from services.errors import InsufficientCredit, InvalidRequest
from services.metering import totals
from services.metering.counting import month_of
from services.metering.prices import amount

GRANT_MAX = Decimal(1_000_000)


@dataclass(frozen=True)
class Credit:
    """One account's month, in units of the currency; `plan_amount` is None where no limit holds."""

    month: date
    plan_amount: Decimal | None
    granted: Decimal
    used: float

    @property
    def is_used_up(self) -> bool:
        """Whether a limit holds and is reached."""
        return self.plan_amount is not None and self.used >= float(self.plan_amount + self.granted)


def check(settings: Settings, owner: User) -> None:
    """Raises InsufficientCredit if the account's credit of this month is used up; reads tallies
    only."""
    if not settings.compute_credit:
        return
    credit = get_credit(settings, owner)
    if credit.is_used_up:
        total = (credit.plan_amount or 0) + credit.granted
        raise InsufficientCredit(
            f"insufficient compute credit: {credit.used:.2f} of {total:.2f} are used in"
            f" {credit.month:%B %Y}. New sandboxes can be made from the first of next month (UTC)"
            " or with more credit; existing ones go on."
        )


def get_credit(settings: Settings, owner: User) -> Credit:
    """The account's credit and cost in the present month."""
    month = month_of(now())
    with connection():
        granted = (
            CreditGrant.select(peewee.fn.COALESCE(peewee.fn.SUM(CreditGrant.amount), 0))
            .where((CreditGrant.owner_id == owner.id) & (CreditGrant.month == month))
            .scalar()
        )
        used = amount(totals.used(owner.id, month).cost)
    return Credit(month, settings.compute_credit.get(Plan(owner.plan).value), Decimal(granted),
                  used)


def grant(owner: User, extra: Decimal, note: str = "") -> None:
    """Give the account `extra` units of the currency for the present month; raises
    InvalidRequest."""
    if not extra.is_finite() or not Decimal("0.000001") <= extra <= GRANT_MAX:
        raise InvalidRequest(f"the amount must be more than 0 and at most {GRANT_MAX}")
    with connection():
        CreditGrant.create(owner_id=owner.id, month=month_of(now()), amount=extra, note=note)


def check_plans(settings: Settings) -> None:
    """Raises SettingsError if the credits or the quotas name a plan that does not exist: the one
    that is meant would have no limit."""
    plans = [plan.value for plan in Plan]
    for name in ("compute_credit", "sandbox_quota", "snapshot_quota", "storage_quota_gb"):
        unknown = sorted(set(getattr(settings, name)) - set(plans))
        if unknown:
            raise SettingsError(
                f"SVC_{name.upper()} names {', '.join(unknown)}; plans are {', '.join(plans)}.")
