"""What is wanted: rows by conditions on columns, applied exactly, and columns; and what can be left unread for that."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import reduce
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc

from recovery.pipeline.schema import ARROW, columns_of

Operation = Literal["=", "<=>", "<", "<=", ">", ">=", "in", "null", "starts", "ends", "contains"]
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND = timedelta(milliseconds=1)
_ORDER = {"<": pc.less, "<=": pc.less_equal, ">": pc.greater, ">=": pc.greater_equal, "=": pc.equal}
_TEXT = {"starts": pc.starts_with, "ends": pc.ends_with, "contains": pc.match_substring}
_TYPES = {pa.string(): str, pa.int64(): int, pa.int32(): int, pa.bool_(): bool, ARROW.field("time").type: datetime}


@dataclass(frozen=True)
class ColumnCondition:
    """``column`` compared with ``value``, or the contrary. As in SQL, where a value is null neither holds."""

    column: str
    operation: Operation
    value: Any = None
    negated: bool = False

    @property
    def possible(self) -> bool:
        """Whether this can be applied exactly: the column is ours, and the value of its type."""
        kind = _TYPES.get(ARROW.field(self.column).type) if self.column in ARROW.names else None
        if kind is None:
            return False
        if self.operation == "null":
            return True
        if self.operation in _TEXT and kind is not str:
            return False
        values = self.value if self.operation == "in" else (self.value,)
        nullable = self.operation in ("in", "<=>")
        return all(_fits(value, ARROW.field(self.column).type) or (value is None and nullable) for value in values)

    def mask(self, batch: pa.RecordBatch) -> Any:
        """For each row true, false or null."""
        column = batch.column(self.column)
        found = self._mask(column)
        return pc.invert(found) if self.negated else found

    def _mask(self, column: Any) -> Any:
        if self.operation == "null":
            return pc.is_null(column)
        if self.operation == "<=>":
            if self.value is None:
                return pc.is_null(column)
            return pc.fill_null(pc.equal(column, pa.scalar(self.value, column.type)), False)
        if self.operation == "in":
            values = [value for value in self.value if value is not None]
            found = pc.is_in(column, value_set=pa.array(values, column.type))
            unknown = pc.is_null(column)
            if len(values) < len(self.value):
                unknown = pc.or_(unknown, pc.invert(found))
            return pc.if_else(unknown, pa.scalar(None, pa.bool_()), found)
        if self.operation in _TEXT:
            return _TEXT[self.operation](column, pattern=self.value)
        return _ORDER[self.operation](column, pa.scalar(self.value, column.type))


def _fits(value: Any, column: pa.DataType) -> bool:
    if type(value) is not _TYPES[column]:
        return False
    if isinstance(value, datetime):
        return value.tzinfo is not None
    return not isinstance(value, int) or isinstance(value, bool) or -1 <= value >> (column.bit_width - 1) <= 0


def _step(value: int | datetime) -> Any:
    """From one value to the next."""
    return 1 if isinstance(value, int) else timedelta.resolution


@dataclass(frozen=True)
class Selection:
    """The rows for which every condition holds, and these columns of them."""

    conditions: tuple[ColumnCondition, ...] = ()
    columns: tuple[str, ...] = tuple(ARROW.names)

    def and_(self, more: Iterable[ColumnCondition]) -> Selection:
        """These and more conditions."""
        return replace(self, conditions=(*self.conditions, *more))

    @property
    def needed(self) -> pa.Schema:
        """The columns that are wanted, and behind them those that are needed to choose the rows."""
        asked = (condition.column for condition in self.conditions)
        return columns_of(dict.fromkeys((*self.columns, *asked)))

    def apply(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """What is wanted of a batch, which has the needed columns."""
        if self.conditions and batch.num_rows:
            batch = batch.filter(reduce(pc.and_, (condition.mask(batch) for condition in self.conditions)))
        return batch if tuple(batch.schema.names) == self.columns else batch.select(self.columns)

    def bounds(self, column: str) -> tuple[Any, Any]:
        """The least and the greatest number or time of a column that can be wanted, None where there is no bound."""
        low: list[Any] = []
        high: list[Any] = []
        for each in self.conditions:
            if each.column != column or each.negated or each.value is None:
                continue
            if each.operation in ("=", "<=>", ">", ">="):
                low.append(each.value + _step(each.value) if each.operation == ">" else each.value)
            if each.operation in ("=", "<=>", "<", "<="):
                high.append(each.value - _step(each.value) if each.operation == "<" else each.value)
            if each.operation == "in" and (values := [value for value in each.value if value is not None]):
                low.append(min(values))
                high.append(max(values))
        return max(low, default=None), min(high, default=None)

    def values(self, column: str) -> frozenset[Any] | None:
        """The only values of a column that can be wanted, None if it can be any."""
        found: frozenset[Any] | None = None
        for each in self.conditions:
            if each.column == column and not each.negated and each.operation in ("=", "<=>", "in"):
                values = frozenset(each.value if each.operation == "in" else (each.value,))
                found = values if found is None else found & values
        return found

    def positions(self, first: int, last: int) -> tuple[int, int]:
        """What remains of a range of sequences."""
        low, high = self.bounds("position")
        return (first if low is None else max(first, low)), (last if high is None else min(last, high))

    def times(self) -> tuple[int, int]:
        """The first and the last time that can be wanted, in milliseconds since 1970."""
        low, high = self.bounds("time")
        return (
            -(1 << 63) if low is None else (low - _EPOCH) // _MILLISECOND,
            (1 << 63) if high is None else (high - _EPOCH) // _MILLISECOND,
        )
