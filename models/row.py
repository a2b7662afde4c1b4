"""The base of every row class, the fields that are ours, and statements that are compiled once:
peewee spends longer on writing the SQL of a wide row than Postgres on answering it.

What is inserted, or looked up by its key, is such a statement, and so are the few others that every
request or operation makes, or a sweep all the time; everything else is written as an ordinary
query.
"""
import json
from collections.abc import Callable, Iterable
from functools import cached_property
from typing import Any, TypeVar

import peewee
from playhouse.postgres_ext import BinaryJSONField, DateTimeTZField

from models.database import database, execution_of

Some = TypeVar("Some", bound="Row")


def _dumps(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), sort_keys=True)


class Statement:
    """A query of `model` whose text is made at its first use; only the values differ from call to
    call.

    `build` takes one placeholder per value and returns the query. The values go to Postgres as they
    are, so they must be of the column's own type (text, number, aware datetime). Columns that are
    not the model's become attributes.

    One that is `prepared` is parsed and planned once for each connection. It looks something up by
    a key: whatever the values are, the plan is the same.
    """

    def __init__(self, model: type[peewee.Model], build: Callable[..., Any], *,
                 values: int = 1, prepared: bool = False) -> None:
        self._model = model
        self._build = build
        self._is_prepared = prepared
        self._markers = [f"\1{number}\1" for number in range(values)]
        self._found: dict[str, Any] = {}

    @cached_property
    def _compiled(self) -> tuple[str, list[Any]]:
        text, parameters = self._build(*self._markers).sql()
        return text, parameters

    def _query(self, values: tuple[Any, ...]) -> Iterable[Any]:
        text, parameters = self._compiled
        text = execution_of(text) if self._is_prepared else text
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


class TimeField(DateTimeTZField):
    """A `timestamptz`; takes and gives aware datetimes only."""


class JsonField(BinaryJSONField):
    """A `jsonb` column with a stable text form."""

    def __init__(self, **options: Any) -> None:
        super().__init__(dumps=_dumps, index=False, **options)


class Row(peewee.Model):
    """Base of all rows; tables are named in the plural by each class."""

    class Meta:
        database = database
        legacy_table_names = False

    @classmethod
    def fields_but(cls, *names: str) -> list[peewee.Field]:
        """All fields but these, for who reads rows without what may be much in them."""
        return [field for field in cls._meta.sorted_fields if field.name not in names]

    @classmethod
    def create(cls: type[Some], **columns: Any) -> Some:
        """Insert a row and return it, with the key that the database gave it if it did."""
        row = cls(**columns)
        text, fields = _insertion(cls, frozenset(row.__data__))
        cursor = database.execute_sql(
            text, [field.db_value(row.__data__[field.name]) for field in fields])
        if cls._meta.auto_increment and row._pk is None:
            row._pk = cursor.fetchone()[0]
        row._dirty.clear()
        return row

    @classmethod
    def get_by_id(cls: type[Some], key: Any) -> Some:
        """The row of that key; raises DoesNotExist."""
        row = cls.find_by_id(key)
        if row is None:
            raise cls.DoesNotExist(f"There is no {cls.__name__} {key}.")
        return row

    @classmethod
    def find_by_id(cls: type[Some], key: Any) -> Some | None:
        """The row of that key, or None."""
        row: Some | None = _lookup(cls).find(key)
        return row


_insertions: dict[tuple[type[Row], frozenset[str]], tuple[str, list[peewee.Field]]] = {}
_lookups: dict[type[Row], Statement] = {}


def _insertion(model: type[Row], names: frozenset[str]) -> tuple[str, list[peewee.Field]]:
    """The statement that inserts a row of these columns, and whose values it takes."""
    if (model, names) not in _insertions:
        fields = [field for field in model._meta.sorted_fields if field.name in names]
        text, _ = model.insert({field: None for field in fields}).sql()
        _insertions[model, names] = str(text), fields
    return _insertions[model, names]


def _lookup(model: type[Row]) -> Statement:
    if model not in _lookups:
        _lookups[model] = Statement(
            model, lambda key: model.select().where(model._meta.primary_key == key), prepared=True)
    return _lookups[model]
