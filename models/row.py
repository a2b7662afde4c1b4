"""The base of every row class, and the fields that are ours.

What is inserted, or looked up by its key, is the same statement each time but for the values: its
text is written once (see `models/statements.py`).
"""
import json
from typing import Any, TypeVar

import peewee
from playhouse.postgres_ext import BinaryJSONField, DateTimeTZField

from models.database import database
from models.statements import Statement

Some = TypeVar("Some", bound="Row")


def _dumps(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), sort_keys=True)


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
        row: Some | None = _lookup(cls).find(key)
        if row is None:
            raise cls.DoesNotExist(f"There is no {cls.__name__} {key}.")
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
            model, lambda key: model.select().where(model._meta.primary_key == key))
    return _lookups[model]
