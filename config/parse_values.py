"""How the values of settings are read from text: lists, amounts, flags, origins of pages, addresses
and networks.

Each function raises ValueError with what it expected.
"""
import ipaddress
import math
import re
from decimal import Decimal, InvalidOperation


def integers(text: str) -> tuple[int, ...]:
    return tuple(int(part) for part in text.split(",") if part.strip())


def number(text: str) -> float:
    """A number to calculate with: neither `nan`, which no comparison is true of, nor `inf`."""
    value = float(text)
    if not math.isfinite(value):
        raise ValueError("expected a finite number")
    return value


def numbers(text: str) -> tuple[float, ...]:
    return tuple(number(part) for part in text.split(",") if part.strip())


def names(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def networks(text: str) -> tuple[str, ...]:
    """Addresses and networks: `192.0.2.1, 10.1.0.0/16, 2001:db8::/32`."""
    return tuple(str(ipaddress.ip_network(part)) for part in names(text))


def ipv4(text: str) -> str:
    """One address of IPv4, with nothing around it: `192.0.2.1`."""
    return str(ipaddress.IPv4Address(text))


def ipv4_network(text: str) -> str:
    """A network of IPv4: `10.1.0.0/16`."""
    return str(ipaddress.IPv4Network(text))


_ORIGIN = re.compile(r"(https?)://(?:[a-z0-9.-]+|\[[0-9a-f:.]+\])(?::[0-9]{1,5})?")


def origins(text: str) -> tuple[str, ...]:
    """Origins of web pages as browsers send them: `https://host` or `http://host:port`."""
    return tuple(_origin(part) for part in names(text))


def _origin(text: str) -> str:
    match = _ORIGIN.fullmatch(text.lower())
    if match is None:
        raise ValueError(f"{text!r} is not an origin, such as https://dashboard.example.test")
    return text.lower().removesuffix(":80" if match[1] == "http" else ":443")


def amounts(text: str) -> dict[str, Decimal]:
    """Amounts of money by name: `small=0.07,large=0.27`; exact, to a millionth."""
    found: dict[str, Decimal] = {}
    for part in names(text):
        name, _, figure = part.partition("=")
        try:
            value = Decimal(figure)
            if not name or name in found or not 0 <= value < 10**6 or value != value.quantize(
                    Decimal("0.000001")):
                raise ValueError
        except (InvalidOperation, ValueError):
            raise ValueError(
                f"{part!r} is not name=amount, each name once, with at most six decimals") from None
        found[name] = value
    return found


def counts(text: str) -> dict[str, int]:
    """Whole numbers by name: `small=1,large=2`."""
    found = {name: amount for name, amount in amounts(text).items()}
    if any(amount != int(amount) for amount in found.values()):
        raise ValueError("expected name=number, whole numbers")
    return {name: int(amount) for name, amount in found.items()}


def flag(text: str) -> bool:
    if text.lower() in {"1", "true", "yes", "on"}:
        return True
    if text.lower() in {"0", "false", "no", "off", ""}:
        return False
    raise ValueError("expected one of 1, 0, true, false, yes, no, on, off")
