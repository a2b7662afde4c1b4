"""Slows down guessing of passwords: allowances of tries that fill up again with time, in rows all
processes share.

Signing in needs the database anyway, so the counting cannot be away by itself: no database, no
sign-in, no guessing. A try is paid for before the password is looked at and given back when it was
right, so that guessing in parallel gains nothing. Each allowance is one row holding the moment at
which it is whole again (a generic cell rate algorithm).
"""
import hashlib
import ipaddress
import math
from datetime import timedelta

from models.database import UNLOCKED_ROWS, connection, database, now, relaxed_transaction
from models.users import LoginThrottle
from services.errors import RateLimited

WINDOW = timedelta(minutes=5)
# Wrong passwords per window: for one account from one address, for one account from anywhere, from
# one address.
PAIR_TRIES, ACCOUNT_TRIES, ADDRESS_TRIES = 10, 50, 50
_BATCH = 1000
# The clock is the database's: the identity processes' own may differ.
_PAY = """
INSERT INTO login_throttles AS kept (subject, full_at) VALUES (%s, clock_timestamp() + %s)
ON CONFLICT (subject) DO UPDATE SET full_at = greatest(kept.full_at, clock_timestamp()) + %s
WHERE greatest(kept.full_at, clock_timestamp()) + %s <= clock_timestamp() + %s
RETURNING full_at
"""
_WAIT = (
    "SELECT extract(epoch FROM full_at + %s - %s - clock_timestamp()) FROM login_throttles WHERE"
    " subject = %s"
)


def pay(email: str, address: str) -> None:
    """Take one try out of every allowance that it counts for; raises RateLimited, and takes none,
    if one is empty."""
    with connection(), relaxed_transaction():
        # In one order, so that two tries never wait for each other.
        for subject, tries in sorted(_allowances(email, address).items()):
            each = WINDOW / tries
            if database.execute_sql(_PAY, (subject, each, each, each, WINDOW)).fetchone() is None:
                raise RateLimited(
                    "Too many failed sign-ins; wait a while.", retry_after_s=_wait_s(subject, each)
                )


def refund(email: str, address: str, *, forgets: bool) -> None:
    """Give back what `pay` took. With `forgets`, after the right password, failed tries for this
    account from this address are forgotten; without, no password was looked at."""
    allowances = _allowances(email, address)
    forgotten = _pair(email, address) if forgets else None
    with connection(), relaxed_transaction():
        for subject, tries in sorted(allowances.items()):
            row = LoginThrottle.subject == subject
            if subject == forgotten:
                LoginThrottle.delete().where(row).execute()
            else:
                LoginThrottle.update(full_at=LoginThrottle.full_at - WINDOW / tries).where(
                    row
                ).execute()


def forget_whole() -> None:
    """Remove the rows of allowances that have been whole for a while: no row says the same.

    A try of an address that nobody has makes rows too, so strangers decide how many there are.
    """
    whole = LoginThrottle.select(LoginThrottle.subject).where(
        LoginThrottle.full_at < now() - WINDOW).limit(_BATCH).for_update(UNLOCKED_ROWS)
    removed = _BATCH
    while removed == _BATCH:
        with connection(), relaxed_transaction():
            removed = LoginThrottle.delete().where(LoginThrottle.subject.in_(whole)).execute()


def _wait_s(subject: str, each: timedelta) -> int:
    row = database.execute_sql(_WAIT, (each, WINDOW, subject)).fetchone()
    return max(1, math.ceil(row[0])) if row else 1


def _allowances(email: str, address: str) -> dict[str, int]:
    network = network_of(address)
    return {
        _pair(email, address): PAIR_TRIES,
        _subject("account", email): ACCOUNT_TRIES,
        _subject("address", network): ADDRESS_TRIES,
    }


def _pair(email: str, address: str) -> str:
    return _subject("pair", f"{network_of(address)} {_normal(email)}")


def _subject(kind: str, value: str) -> str:
    # A digest: what people type into the wrong field may be their password.
    return f"{kind} {hashlib.sha256(_normal(value).encode('utf-8', 'surrogatepass')).hexdigest()}"


def _normal(email: str) -> str:
    return email.strip().lower()


def network_of(address: str) -> str:
    """What one person holds of addresses: an IPv4 address, or a /64 of IPv6."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv6Address):
        if parsed.ipv4_mapped is not None:
            return str(parsed.ipv4_mapped)
        return str(ipaddress.ip_network((parsed, 64), strict=False))
    return str(parsed)
