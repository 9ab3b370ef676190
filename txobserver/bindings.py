"""Durable bindings in the order in which they were made, found by themselves and by either of their ends.

One binding more or less costs the same however many there are, and the end of a queue costs the bindings to it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Any

import msgspec

Group = dict[bytes, None]
"""The keys of the bindings that have both ends in common, in order"""
End = tuple[bool, str]
"""Where a binding leads: whether to a queue, and the name"""


class BindingSpec(msgspec.Struct, array_like=True, forbid_unknown_fields=True):
    """A binding from ``source`` to a queue (``to_queue``) or to another exchange."""

    source: str
    destination: str
    to_queue: bool
    routing_key: str
    arguments: dict[str, Any]


Key = bytes
"""What tells a binding from others: its encoded form."""

key_of = msgspec.msgpack.Encoder(order="sorted").encode
"""Tells apart what Python's equality does not: {"a": 1} and {"a": True} are two bindings."""


class Bindings:
    """In order, each once. ``steps`` counts what changes have looked at since the beginning."""

    def __init__(self, specs: Iterable[BindingSpec] = ()) -> None:
        self.steps = 0
        self._all: dict[Key, BindingSpec] = {}
        self._from: dict[str, dict[End, Group]] = {}
        self._to: dict[End, dict[str, Group]] = {}
        self._indexed = True
        self.extend(specs)

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[BindingSpec]:
        return iter(self._all.values())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Bindings | list) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Bindings({list(self)!r})"

    def __contains__(self, spec: BindingSpec) -> bool:
        return key_of(spec) in self._all

    def copy(self) -> Bindings:
        """The same, independent of these. It is indexed when it is changed; most copies are only read."""
        found = Bindings()
        found._all = dict(self._all)
        found._indexed = False
        return found

    def index(self) -> None:
        """Make sure that changes find what they need, now rather than at the first one."""
        if not self._indexed:
            self._indexed = True
            for key, spec in self._all.items():
                self._note(key, spec)

    def leads_from(self, exchange: str) -> bool:
        """Whether any leads away from this exchange."""
        self.index()
        return exchange in self._from

    def sources(self) -> Collection[str]:
        """The exchanges that bindings lead away from."""
        self.index()
        return self._from.keys()

    def append(self, spec: BindingSpec) -> None:
        """One more, behind all others."""
        self.index()
        key = key_of(spec)
        self._all[key] = spec
        self._note(key, spec)

    def extend(self, specs: Iterable[BindingSpec]) -> None:
        """The same of several."""
        for spec in specs:
            self.append(spec)

    def remove(self, spec: BindingSpec) -> None:
        """One less. KeyError if it is not there."""
        self.index()
        self.steps += 1
        key, end = key_of(spec), _end_of(spec)
        del self._all[key]
        group = self._from[spec.source][end]
        del group[key]
        if not group:
            self._drop(spec.source, end)

    def remove_from(self, exchange: str) -> None:
        """Those that lead away from this exchange."""
        self.index()
        for end in list(self._from.get(exchange, ())):
            self._forget(self._drop(exchange, end))

    def remove_to(self, to_queue: bool, name: str) -> list[str]:
        """Those that lead to this queue or exchange; returns the sources that lost one."""
        self.index()
        end = to_queue, name
        sources = list(self._to.get(end, ()))
        for source in sources:
            self._forget(self._drop(source, end))
        return sources

    def _forget(self, group: Group) -> None:
        self.steps += len(group)
        for key in group:
            del self._all[key]

    def _drop(self, source: str, end: End) -> Group:
        """No binding leads from this exchange to this end any more; returns those that did."""
        ends, sources = self._from[source], self._to[end]
        del sources[source]
        if not sources:
            del self._to[end]
        group = ends.pop(end)
        if not ends:
            del self._from[source]
        return group

    def _note(self, key: Key, spec: BindingSpec) -> None:
        self.steps += 1
        end = _end_of(spec)
        ends = self._from.setdefault(spec.source, {})
        group = ends.get(end)
        if group is None:
            group = ends[end] = self._to.setdefault(end, {})[spec.source] = {}
        group[key] = None


def _end_of(spec: BindingSpec) -> End:
    return spec.to_queue, spec.destination


def written(value: object) -> list[BindingSpec]:
    """Bindings as msgspec writes them (``enc_hook``)."""
    if isinstance(value, Bindings):
        return list(value)
    raise TypeError(f"{type(value).__name__} is not written")


def as_read(kind: type, value: object) -> Bindings:
    """Bindings as msgspec reads them (``dec_hook``). Raises msgspec.ValidationError."""
    if kind is Bindings:
        return Bindings(msgspec.convert(value, list[BindingSpec]))
    raise TypeError(f"{kind.__name__} is not read")
