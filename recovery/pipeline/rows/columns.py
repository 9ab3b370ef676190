"""Columns of a batch of rows."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, Protocol

import numpy as np
import pyarrow as pa

Numbers = np.ndarray[Any, np.dtype[np.int64]]
Flags = np.ndarray[Any, np.dtype[np.bool_]]


class Column(Protocol):
    """A value, or null, for each row."""

    def array(self, first: int, last: int) -> pa.Array:
        """Those of the rows from ``first`` up to ``last``, without it."""
        ...


class WholeColumn:
    """One whose values are there already."""

    def __init__(self, values: pa.Array) -> None:
        self._values = values

    def array(self, first: int, last: int) -> pa.Array:
        """See ``Column``."""
        return self._values[first:last]


class NumberColumn:
    """Numbers; -1 stands for null."""

    def __init__(self, kind: pa.DataType, values: Numbers) -> None:
        self._kind = kind
        self._values = values

    def array(self, first: int, last: int) -> pa.Array:
        """See ``Column``."""
        values = self._values[first:last]
        return pa.array(values, mask=values < 0).cast(self._kind)


class PooledColumn:
    """Values that are given once for all the rows that have them; null where none is put."""

    def __init__(self, kind: pa.DataType, count: int) -> None:
        self._kind = kind
        self._pool: list[Any] = []
        self._index: Numbers = np.full(count, -1, np.int64)

    def put(self, rows: Any, pool: Sequence[Any], which: Any = 0) -> None:
        """``which`` of the pool each of these rows has, -1 for none."""
        self._index[rows] = np.where(which < 0, -1, which + len(self._pool))
        self._pool += pool

    @cached_property
    def _values(self) -> pa.Array:
        """The pool, once everything has been put; several batches may be cut from one column."""
        return pa.array(self._pool, self._kind)

    def array(self, first: int, last: int) -> pa.Array:
        """See ``Column``."""
        index = self._index[first:last]
        if not self._pool:
            return pa.nulls(len(index), self._kind)
        return self._values.take(pa.array(index, mask=index < 0))


class SlicedColumn:
    """Texts or bytes that stand in ``data``; of each row ``index`` says which, -1 for none.

    ``begins`` and ``ends``: where they stand, in order and without overlap. ``wanted``: which of them there are.
    """

    def __init__(self, kind: pa.DataType, data: bytes, begins: Numbers, ends: Numbers, index: Numbers) -> None:
        self._kind = kind
        edges = np.empty(2 * len(begins), np.int32)
        edges[0::2], edges[1::2] = begins, ends
        # they and the gaps between them are one array, of which every other value is taken
        self._buffers = [None, pa.py_buffer(edges), pa.py_buffer(data)]
        self._count = max(len(edges) - 1, 0)
        self._index = index

    def array(self, first: int, last: int) -> pa.Array:
        """See ``Column``. What is no UTF-8 is replaced in a text."""
        index = self._index[first:last]
        if not self._count:
            return pa.nulls(len(index), self._kind)
        whole = pa.BinaryArray.from_buffers(pa.binary(), self._count, self._buffers)
        found = whole.take(pa.array(2 * index, mask=index < 0))
        return found if self._kind == pa.binary() else _texts(found)


def _texts(values: pa.BinaryArray) -> pa.StringArray:
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([value and value.decode(errors="replace") for value in values.to_pylist()], pa.string())
