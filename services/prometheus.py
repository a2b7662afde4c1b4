"""Figures as text for Prometheus."""
import json
from collections.abc import Iterable

# What is added to the family's name, the labels, and the figure.
Line = tuple[str, dict[str, str], float]
# Name, type (`counter` or `gauge`), what it says, and its lines.
Family = tuple[str, str, str, list[Line]]


def text_of(families: Iterable[Family]) -> str:
    """The families as Prometheus reads them, in their order."""
    return "".join(_family(*family) for family in families)


def _family(name: str, kind: str, about: str, lines: list[Line]) -> str:
    shown = "".join(f"{name}{suffix}{_labels(labels)} {value}\n" for suffix, labels, value in lines)
    return f"# HELP {name} {about}\n# TYPE {name} {kind}\n{shown}"


def _labels(labels: dict[str, str]) -> str:
    """What a quotation mark, a backslash and a line's end need is what they need in JSON."""
    inner = ",".join(f"{name}={json.dumps(value, ensure_ascii=False)}"
                     for name, value in labels.items())
    return f"{{{inner}}}" if inner else ""
