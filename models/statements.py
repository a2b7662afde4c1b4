"""Queries that are compiled once: peewee spends longer on writing the SQL of a wide row than
Postgres on answering it.

For the few that every request or operation makes; everything else is written as an ordinary query.
"""
from collections.abc import Callable, Iterable
from functools import cached_property
from typing import Any

import peewee

from models.database import database


class Statement:
    """A query of `model` whose text is made at its first use; only the values differ from call to
    call.

    `build` takes one placeholder per value and returns the query. The values go to Postgres as they
    are, so they must be of the column's own type (text, number, aware datetime). Columns that are
    not the model's become attributes.
    """

    def __init__(self, model: type[peewee.Model], build: Callable[..., Any], *,
                 values: int = 1) -> None:
        self._model = model
        self._build = build
        self._markers = [f"\1{number}\1" for number in range(values)]
        self._found: dict[str, Any] = {}

    @cached_property
    def _compiled(self) -> tuple[str, list[Any]]:
        text, parameters = self._build(*self._markers).sql()
        return text, parameters

    def _query(self, values: tuple[Any, ...]) -> Iterable[Any]:
        text, parameters = self._compiled
        given = dict(zip(self._markers, values, strict=True))
        cursor = database.execute_sql(
            text, [given.get(one, one) if isinstance(one, str) else one for one in parameters])
        return _Rows(cursor, self._model, self._found)

    def find(self, *values: Any) -> Any:
        """The first row, or None."""
        return next(iter(self._query(values)), None)

    def all(self, *values: Any) -> list[Any]:
        """Every row."""
        return list(self._query(values))


class _Rows(peewee.ModelObjectCursorWrapper):
    """Rows of a statement. Which column is which field, and how its value is made, is `found` out
    at the first use of the statement."""

    def __init__(self, cursor: Any, model: type[peewee.Model], found: dict[str, Any]) -> None:
        super().__init__(cursor, model, [], model)
        self._found = found

    def initialize(self) -> None:
        """What peewee calls before it reads the first row."""
        if not self._found:
            known = set(vars(self))
            super().initialize()
            self._found |= {name: value for name, value in vars(self).items() if name not in known}
        self.__dict__.update(self._found)
