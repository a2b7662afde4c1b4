"""What machines cost by the list, in whole units, so that sums are exact and in any order the same.

A rate is a list price per hour in millionths of the currency. A cost is a rate times milliseconds:
`COST_UNITS` of them are one unit of the currency. Only what is shown is rounded.
"""
from decimal import Decimal

from config.settings import Settings, SettingsError
from services.metering.plans import SIZES

_MILLIONTHS = 1_000_000
_HOUR_MS = 3_600_000
COST_UNITS = _MILLIONTHS * _HOUR_MS


def rate_of(settings: Settings, vcpus: int, mem_mb: int) -> int:
    """List price of a machine of this shape, in millionths of the currency per hour; 0 if the list
    does not name it."""
    for size in SIZES.values():
        if (size.vcpus, size.mem_mb) == (vcpus, mem_mb):
            return int(settings.list_rates.get(size.name, Decimal(0)) * _MILLIONTHS)
    return 0


def amount(cost: Decimal | int) -> float:
    """A cost in units of the currency, rounded to millionths, as it is shown."""
    return round(float(Decimal(cost) / COST_UNITS), 6)


def check_rates(settings: Settings) -> None:
    """Raises SettingsError if the list of rates names a size that does not exist."""
    unknown = sorted(set(settings.list_rates) - set(SIZES))
    if unknown:
        raise SettingsError(
            f"SVC_LIST_RATES names {', '.join(unknown)}; sizes are {', '.join(SIZES)}.")
