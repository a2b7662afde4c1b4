"""The base of every row class, the fields that are ours, and statements that are compiled once:
peewee spends longer on writing the SQL of a wide row than Postgres on answering it.

What is inserted, or looked up by its key, is such a statement, and so are the few others that every
request or operation makes, or a sweep all the time; everything else is written as an ordinary
query.
"""
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import SimpleNamespace
from typing import Any, TypeVar

import peewee
from playhouse.postgres_ext import BinaryJSONField, DateTimeTZField

from models.database import database, execution_of

Some = TypeVar("Some", bound="Row")
Values = tuple[Any, ...]
Columns = Sequence[tuple[Any, ...]]  # a cursor's description


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
        self._make: Callable[[Values], Any] | None = None

    @cached_property
    def _compiled(self) -> tuple[str, list[Any]]:
        text, parameters = self._build(*self._markers).sql()
        return text, parameters

    def _ask(self, values: Values) -> tuple[Any, Callable[[Values], Any]]:
        text, parameters = self._compiled
        text = execution_of(text) if self._is_prepared else text
        given = dict(zip(self._markers, values, strict=True))
        cursor = database.execute_sql(
            text, [given.get(one, one) if isinstance(one, str) else one for one in parameters])
        if self._make is None:
            self._make = self._maker(cursor.description)
        return cursor, self._make

    def _maker(self, columns: Columns) -> Callable[[Values], Any]:
        """What makes a row of what these columns hold."""
        return _RowMaker(self._model, columns).make

    def find(self, *values: Any) -> Any:
        """The first row, or None."""
        cursor, make = self._ask(values)
        found = cursor.fetchone()
        return None if found is None else make(found)

    def all(self, *values: Any) -> list[Any]:
        """Every row."""
        cursor, make = self._ask(values)
        return [make(found) for found in cursor.fetchall()]


class _RowMaker:
    """Makes rows of `model`. Which column is which field, and what makes its value, is asked of
    peewee once; its own way of making a row, which sets each field through the model, takes as long
    as Postgres does to find it."""

    def __init__(self, model: type[peewee.Model], columns: Columns) -> None:
        known = peewee.ModelObjectCursorWrapper(SimpleNamespace(description=columns), model, [],
                                                model)
        known.initialize()
        named = list(zip(known.unique_columns, known.fields, strict=True))
        self._model = model
        self._names = [field.name if field else column for column, field in named]
        self._others = [column for column, field in named if field is None]
        self._converters = [(field.name, field.python_value) for _, field in named
                            if field is not None and not _comes_as_it_is(field)]

    def make(self, values: Values) -> Any:
        """The row of these values, unchanged since it was read."""
        data = dict(zip(self._names, values))
        for name, convert in self._converters:
            data[name] = convert(data[name])
        row: Any = object.__new__(self._model)
        row.__data__, row.__rel__, row._dirty = data, {}, set()
        for name in self._others:
            setattr(row, name, data.pop(name))
        return row


def _comes_as_it_is(field: peewee.Field) -> bool:
    """Whether psycopg2 gives values of the field's own type."""
    if isinstance(field, peewee.ForeignKeyField):
        return _comes_as_it_is(field.rel_field)
    return isinstance(field, (peewee.TextField, peewee.IntegerField, peewee.BooleanField,
                              TimeField))


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
_lookups: "dict[type[Row], Lookup]" = {}


def _insertion(model: type[Row], names: frozenset[str]) -> tuple[str, list[peewee.Field]]:
    """The statement that inserts a row of these columns, and whose values it takes."""
    if (model, names) not in _insertions:
        fields = [field for field in model._meta.sorted_fields if field.name in names]
        text, _ = model.insert({field: None for field in fields}).sql()
        _insertions[model, names] = str(text), fields
    return _insertions[model, names]


def _lookup(model: type[Row]) -> "Lookup":
    if model not in _lookups:
        _lookups[model] = Lookup(model, *model._meta.sorted_fields)
    return _lookups[model]


class Lookup:
    """Reads `columns` of the row of `model` that has a key, its primary key first. What columns of
    other tables need is added to the query by `join`, as outer joins."""

    def __init__(self, model: type[Row], *columns: Any,
                 join: Callable[[Any], Any] = lambda query: query) -> None:
        self.model, self.columns, self._join = model, columns, join
        self._alone = Statement(
            model, lambda key: join(model.select(*columns)).where(self._is(key)), prepared=True)

    def _is(self, key: Any) -> Any:
        return self.model._meta.primary_key == key

    def find(self, key: Any) -> Any:
        """The row, or None."""
        return self._alone.find(key)

    def joined_to(self, query: Any, key: Any) -> Any:
        """A query for the same beside what `query` selects: its last columns."""
        return self._join(query.select_extend(*self.columns).join(
            self.model, peewee.JOIN.LEFT_OUTER, on=self._is(key)))


@dataclass(frozen=True)
class About:
    """What something is about: the row that `lookup` finds for `key`."""

    lookup: Lookup
    key: str


@dataclass(frozen=True)
class ReadAhead:
    """The row that a call is `about`, or None if there is none, as it was when the credential of
    the call was judged. Nobody has looked whose it is."""

    about: About
    row: Any


class PairStatement(Statement):
    """A prepared statement for two rows at once, of which neither depends on the other: that of the
    query which `build` makes of the first value, and with it the one that `lookup` finds for the
    second. Gives pairs; the second is None if there is no row of that key, and without the first
    there is no pair."""

    def __init__(self, model: type[Row], build: Callable[[Any], Any], lookup: Lookup) -> None:
        super().__init__(model, lambda value, key: lookup.joined_to(build(value), key), values=2,
                         prepared=True)
        self._lookup = lookup

    def _maker(self, columns: Columns) -> Callable[[Values], Any]:
        first_of_second = len(columns) - len(self._lookup.columns)
        make_first = super()._maker(columns[:first_of_second])
        make_second = _RowMaker(self._lookup.model, columns[first_of_second:]).make

        def make(values: Values) -> tuple[Any, Any]:
            is_there = values[first_of_second] is not None
            return (make_first(values[:first_of_second]),
                    make_second(values[first_of_second:]) if is_there else None)

        return make
