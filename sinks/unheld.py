"""What becomes of values that a store's type cannot hold, such as an infinite date in a lake.

``refuse`` sets the row aside by name. ``null`` stores NULL, ``nearest`` what is nearest of what the store can
hold; both keep the value itself beside the row, spelled as in a document, and reading a row gives it back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import ROUND_HALF_EVEN, Context, Decimal
from enum import Enum
from typing import Any

from pydantic import BaseModel, Field, model_validator

from headrace.model.errors import UsageError
from headrace.model.schema import Column, LogicalType, TableSchema
from headrace.model.values import canonical, date_days, micros_of
from sinks.document import CONVERSION_ERRORS, converter, reader

__all__ = ["Policy", "UnheldSettings", "nearest", "original", "refuse_unknown", "spelled"]

_SETTING = "unheld"
_FIRST, _LAST = "0001-01-01", "9999-12-31"
_FIRST_INSTANT, _LAST_INSTANT = f"{_FIRST}T00:00:00Z", f"{_LAST}T23:59:59.999999Z"


class Policy(str, Enum):
    """What becomes of a value that a column of the store cannot hold."""

    REFUSE = "refuse"
    NULL = "null"
    NEAREST = "nearest"


class UnheldSettings(BaseModel):
    """The part of a sink's settings about such values.

    Args:
        unheld: ``refuse``, ``null`` or ``nearest``; for all columns that have no setting of their own.
        unheld_columns: The same for single columns; set as ``unheld.<schema>.<table>.<column>``.
    """

    unheld: Policy = Policy.REFUSE
    unheld_columns: Mapping[str, Policy] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _gathered(cls, values: Any) -> Any:
        if not isinstance(values, Mapping):
            return values
        single = {name: value for name, value in values.items() if name.startswith(f"{_SETTING}.")}
        if not single:
            return values
        columns = {name.removeprefix(f"{_SETTING}."): value for name, value in single.items()}
        rest = {name: value for name, value in values.items() if name not in single}
        return {**rest, "unheld_columns": {**rest.get("unheld_columns", {}), **columns}}

    @classmethod
    def no_use(cls, column: Column) -> str:
        """Return why a policy changes nothing for a column, and what can be done; empty where it does.

        Each kind of sink says it of its own store.
        """
        return ""

    def policy(self, schema: TableSchema, column: Column) -> Policy:
        """Return what becomes of such a value of a column."""
        return self.unheld_columns.get(f"{schema.table}.{column.name}", self.unheld)

    def policies(self, schema: TableSchema) -> tuple[tuple[str, Policy], ...]:
        """Return the columns of a table whose values are not refused, and what becomes of them.

        Columns for which a policy changes nothing are not among them.
        """
        if self.unheld is Policy.REFUSE and not self.unheld_columns:
            return ()
        useful = (column for column in schema.columns if not self.no_use(column))
        told = ((column.name, self.policy(schema, column)) for column in useful)
        return tuple((name, policy) for name, policy in told if policy is not Policy.REFUSE)


def refuse_unknown(
    settings: Mapping[str, Any], schemas: Iterable[TableSchema], model: type[BaseModel]
) -> None:
    """Refuse a setting for a column that is not there, or for which a policy would change nothing.

    To refuse values is what is done without a policy, so any column takes that.

    Args:
        settings: What is given for a sink.
        schemas: The tables that it mirrors.
        model: The settings of its kind; one without policies refuses them itself.

    Raises:
        UsageError: ``SINK_SETTINGS_INVALID``.
    """
    named = [name for name in settings if name.startswith(f"{_SETTING}.")]
    if not named:
        return
    known = {
        f"{_SETTING}.{schema.table}.{column.name}": column for schema in schemas for column in schema.columns
    }
    if unknown := [name for name in named if name not in known]:
        raise UsageError(
            f"The sink mirrors no column that {', '.join(unknown)} could be about.",
            code="SINK_SETTINGS_INVALID",
            hint=f"Write --set {_SETTING}.SCHEMA.TABLE.COLUMN=null.",
        )
    if not issubclass(model, UnheldSettings):
        return
    told = {name: model.no_use(known[name]) for name in named if settings[name] != Policy.REFUSE}
    if idle := {name: why for name, why in told.items() if why}:
        raise UsageError(
            f"A policy changes nothing for {', '.join(idle)}: no value of the column would be kept by it.",
            code="SINK_SETTINGS_INVALID",
            hint=" ".join(dict.fromkeys(idle.values())),
        )


def spelled(column: Column, value: Any) -> Any:
    """Return a value as it is kept beside its row.

    Raises:
        ValueError: When it is none of the column's type, and so nothing to be kept.
    """
    try:
        canonical(column, value)
        convert = None if column.type is LogicalType.JSON else converter(column)
        return value if convert is None else convert(value)
    except CONVERSION_ERRORS as error:
        raise ValueError(f"no value of {column.name}") from error


def original(column: Column, kept: Any) -> Any:
    """Return the value that :func:`spelled` was given."""
    return kept if column.type is LogicalType.JSON else reader(column)(kept)


def nearest(column: Column, value: Any) -> Any:
    """Return what is nearest to a value of what stores and their readers hold; None where nothing is.

    Dates and times end with the year 9999, numbers of limited digits with the largest of so many.
    """
    if isinstance(value, (list, tuple)):
        return [nearest(column, item) for item in value]
    find = _NEAREST.get(column.type)
    return None if value is None or find is None else find(column, value)


def _date(_column: Column, value: int | str) -> int:
    first, last = date_days(_FIRST), date_days(_LAST)
    return _within(value, first, last)


def _timestamp(_column: Column, value: int | str) -> int:
    return _within(value, micros_of(_FIRST_INSTANT), micros_of(_LAST_INSTANT))


def _within(value: int | str, first: int, last: int) -> int:
    if isinstance(value, str):
        return first if value.startswith("-") else last
    return max(first, min(value, last))


def _timestamptz(_column: Column, value: str) -> str:
    if value.startswith("-"):
        return _FIRST_INSTANT
    return _LAST_INSTANT if not value[:4].isdigit() else value


def _numeric(column: Column, value: str) -> str | None:
    number = Decimal(value)
    if number.is_nan() or column.precision is None:
        return None
    scale = column.scale or 0
    limits = Context(prec=column.precision, rounding=ROUND_HALF_EVEN)
    most = Decimal(10) ** (column.precision - scale) - Decimal(1).scaleb(-scale)
    if number.is_infinite() or abs(number) > most:
        number = most.copy_sign(number)
    return format(number.quantize(Decimal(1).scaleb(-scale), context=limits), "f")


_NEAREST = {
    LogicalType.DATE: _date,
    LogicalType.TIMESTAMP: _timestamp,
    LogicalType.TIMESTAMPTZ: _timestamptz,
    LogicalType.NUMERIC: _numeric,
}
