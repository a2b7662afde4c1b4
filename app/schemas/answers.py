"""Base and field types of answers: one definition makes the JSON of an answer and describes it.

An answer is named `<Component>Answer`; its docstring is the description in the OpenAPI document. A
field shows the attribute of its own name, or of the name `read`, or what a function `read` makes of
the whole object.
"""
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cache, partial
from operator import attrgetter
from typing import Any

from marshmallow import EXCLUDE, fields

from app.schemas.fields import CamelCase
from services.events.record import rfc3339
from services.metering.prices import amount

Json = dict[str, Any]
Read = Callable[[Any], Any]

PORT = {"type": "integer", "minimum": 1, "maximum": 65535}


def whole(shown: Any) -> Any:
    """What a field reads that shows the object itself, not an attribute of it."""
    return shown


def always(value: Any) -> Read:
    """What a field reads that shows the same every time."""
    return lambda _: value


@dataclass(frozen=True)
class LongText:
    """The pieces of a text that may be too large to be held as a whole; shown as a string."""

    pieces: Iterable[str]


class Shown(fields.Field[Any]):
    """A field of an answer: `openapi` is its JSON Schema, `show` makes JSON of a value.

    A field may be `null`, or `optional`: left out where its value is None or False.
    """

    def __init__(self, about: str = "", *, openapi: Mapping[str, Any], show: Read | None = None,
                 read: str | Read | None = None, null: bool = False, optional: bool = False,
                 **options: Any) -> None:
        super().__init__(required=not optional, metadata={"description": about} if about else {},
                         **options)
        self.openapi = dict(openapi)
        if null:
            self.openapi["type"] = [self.openapi["type"], "null"]
        self.show, self.read = show, read

    def reader(self) -> Read:
        """What gives the JSON of this field for an object; made once, as it is called for every
        entry of a list."""
        source, show = self.read or self.name or "", self.show
        read: Read = attrgetter(source) if isinstance(source, str) else source
        if show is None:
            return read
        write: Read = show
        return lambda shown: None if (value := read(shown)) is None else write(value)


Text = partial(Shown, openapi={"type": "string"})
Flag = partial(Shown, openapi={"type": "boolean"})
Count = partial(Shown, openapi={"type": "integer", "minimum": 0})
Time = partial(Shown, openapi={"type": "string", "format": "date-time"}, show=rfc3339)
Amount = partial(Shown, openapi={"type": "number", "minimum": 0})
Cost = partial(Amount, show=amount)
# Milliseconds inside.
Seconds = partial(Amount, show=lambda milliseconds: milliseconds / 1000)


def one_of(words: type[Enum], about: str = "", *, optional: bool = False) -> Shown:
    """A word of an enumeration."""
    return Shown(about, openapi={"type": "string", "enum": [word.value for word in words]},
                 optional=optional)


def constant(value: Any) -> Shown:
    """The one value that there is."""
    return Shown(openapi={"const": value}, read=always(value))


class Answer(CamelCase):
    """Base of the answers."""

    class Meta:
        unknown = EXCLUDE

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._always: list[tuple[str, Read]] = []
        self._optional: list[tuple[str, Read]] = []
        for name, field in self.fields.items():
            assert isinstance(field, Shown)
            readers = self._always if field.required else self._optional
            readers.append((field.data_key or name, field.reader()))

    def dump(self, obj: Any, *, many: bool | None = None) -> Any:
        """The JSON of `obj`. Marshmallow's own way takes ten times as long."""
        if many:
            return [self.dump(item) for item in obj]
        shown = {key: read(obj) for key, read in self._always}
        for key, read in self._optional:
            value = read(obj)
            if value is not None and value is not False:
                shown[key] = value
        return shown


class Inner(Shown):
    """Another answer, or with `many` a list of them."""

    def __init__(self, answer: type[Answer], *, many: bool = False, **options: Any) -> None:
        super().__init__(openapi={}, show=lambda value: answer_of(answer).dump(value, many=many),
                         **options)
        self.answer, self.many = answer, many


@cache
def answer_of(kind: type[Answer]) -> Answer:
    """The one instance of an answer; to make one takes longer than a hundred dumps."""
    return kind()


class ErrorAnswer(Answer):
    """What went wrong, and what to do about it."""

    error = Text(read=whole)


class HealthAnswer(Answer):
    """This process can do its work."""

    status = constant("ok")
