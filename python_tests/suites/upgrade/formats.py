"""Everything that one node writes and another may read, as the txha at hand has it: run with each of two versions.

``python formats.py catalogue`` prints what there is: kinds of messages, events and steps, all their fields, numbers of
formats. ``examples`` prints one encoding of each kind, and of each alternative in one. ``understood`` reads such
encodings, and prints what becomes of each when it is decoded and encoded again.

It must run beside any release, so it imports what it asks for by name; what is not there is absent, and no error.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

import msgspec
from msgspec import inspect as shapes

ROOTS = {
    "message": "ha.messages.wire:_decoder",
    "event": "txobserver.frames:_decoder",
    "checkpoint": "txobserver.ports.store:Meta",
    "outcome": "txobserver.outcomes:Remembered",
    "kept message": "txobserver.events:Message",
    "open transactions": "txobserver.ports.store:QueueSummary",
    "record": "ha.membership.record:Record",
    "identity": "recovery.store.identity:Identity",
    "segment": "recovery.store.segment:SegmentInfo",
    "calls.json": "txobserver.calls:LocalCalls",
    "actions.json": "broker_plugin.node.calls.surroundings:InForce",
    "question of a reader": "recovery.reader.log_wire:_question",
    "answer to a reader": "recovery.reader.log_wire:_answer",
}
"""Each: a decoder, or the type that one decodes"""
JSON = ("record", "identity", "segment", "actions.json", "calls.json")
NUMBERS = {
    "peer protocol": "ha.messages.greeting:WIRE_VERSION",
    "oldest peer protocol": "ha.messages.greeting:OLDEST_VERSION",
    "proof": "ha.messages.proof:PROOF_VERSION",
    "frames": "txobserver.frames:FORMAT_VERSION",
    "segments": "recovery.store.segment:FORMAT_VERSION",
    "queue state": "recovery.store.lmdb_tables:FORMAT_VERSION",
    "queue state without users": "recovery.store.lmdb_tables:WITHOUT_USERS",
    "identity": "recovery.store.identity:FORMAT_VERSION",
    "record in SQLite": "broker_plugin.coordination.sqlite_coordination:FORMAT_VERSION",
    "record in etcd": "broker_plugin.coordination.etcd.stored:FORMAT_VERSION",
    "record in SQLite with members": "broker_plugin.coordination.sqlite_coordination:WITH_MEMBERS",
    "record in etcd with members": "broker_plugin.coordination.etcd.stored:WITH_MEMBERS",
    "files of calls": "broker_plugin.node.calls.kept_file:FORMAT_VERSION",
    "reading protocol": "recovery.reader.log_wire:READ_VERSION",
}
FEATURES = (
    "ha.messages.greeting:INTRODUCTIONS",
    "ha.messages.greeting:INTRODUCTIONS_TLS",
    "ha.messages.alarms:ALARMS_FEATURE",
)
"""Those beside ``FEATURES`` of the greeting, which the shell names"""


def named(place: str) -> Any:
    """What stands at ``module:name``; None where there is no such thing."""
    module, _, name = place.partition(":")
    try:
        return getattr(import_module(module), name, None)
    except ModuleNotFoundError:
        return None


def root(name: str) -> Any:
    """The type of a root; None where it is absent."""
    found = named(ROOTS[name])
    return getattr(found, "type", found)


# -- the catalogue


def catalogue() -> dict[str, str]:
    """What there is, each with how it looks."""
    found: dict[str, str] = {}
    for name in ROOTS:
        if (kind := root(name)) is not None:
            found |= {f"{name}: {each}": "it is one" for each in _kinds(shapes.type_info(kind), found)}
    for name, place in NUMBERS.items():
        if (number := named(place)) is not None:
            found[f"format of {name}"] = str(number)
    feature_of = named("txobserver.configuration:FEATURE_OF") or {}
    arguments = {
        **(named("txobserver.configuration:_ARGUMENTS") or {}),
        **(named("txobserver.access:_ARGUMENTS") or {}),
    }
    for operation in named("txobserver.configuration:OPERATIONS"):
        kind = arguments.get(operation)
        shape = _shape(shapes.type_info(kind), found) if kind is not None else "no arguments"
        found[f"step {operation}"] = f"{shape}, of {feature_of.get(operation, 'the first version')}"
    for operation, version, kind in _actions():
        found[f"action {operation}, version {version}"] = _shape(shapes.type_info(kind), found)
    for flag in named("txobserver.actions:FLAGS") or {}:
        found[f"flag {flag}"] = "it can be raised"
    return found


def features() -> list[str]:
    """What a node of this version names."""
    others = [named(place) for place in FEATURES]
    return sorted({*named("ha.messages.greeting:FEATURES"), *(each for each in others if each)})


def _actions() -> list[tuple[str, int, Any]]:
    known = named("txobserver.actions:SHIPPED")._actions
    return [(operation, version, action.arguments) for (operation, version), action in known.items()]


def _kinds(kind: shapes.Type, found: dict[str, str]) -> list[str]:
    """The alternatives that a root has."""
    while isinstance(kind, shapes.ListType):
        kind = kind.item_type
    return [_shape(each, found) for each in (kind.types if isinstance(kind, shapes.UnionType) else (kind,))]


def _shape(kind: shapes.Type, found: dict[str, str]) -> str:
    """One type in a line; structs and tuples with names get lines of their own, which this one names."""
    if isinstance(kind, shapes.StructType | shapes.NamedTupleType):
        return _fields(kind, found)
    if isinstance(kind, shapes.UnionType):
        return " | ".join(sorted(_shape(each, found) for each in kind.types))
    if isinstance(kind, shapes.CustomType):
        return kind.cls.__name__
    if isinstance(kind, shapes.EnumType):
        return f"{kind.cls.__name__}{sorted(each.value for each in kind.cls)}"
    if isinstance(kind, shapes.LiteralType):
        return f"one of {sorted(kind.values)}"
    parts = [f"{field}={_part(getattr(kind, field), found)}" for field in kind.__struct_fields__]
    set_ = [each for each in parts if not each.endswith("=None")]
    return f"{type(kind).__name__.removesuffix('Type').lower()}{f'({chr(44).join(set_)})' if set_ else ''}"


def _part(value: Any, found: dict[str, str]) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(_part(each, found) for each in value)}]"
    return _shape(value, found) if isinstance(value, shapes.Type) else str(value)


def _fields(kind: Any, found: dict[str, str]) -> str:
    tag = getattr(kind, "tag", None)
    name = f"{kind.cls.__name__}{f' ({tag})' if tag is not None else ''}"
    if name in found:
        return name
    found[name] = "being looked at"
    for at, field in enumerate(kind.fields):
        needed = "" if field.required else ", which may lack"
        found[f"{name}.{field.name}"] = f"{at}: {_shape(field.type, found)}{needed}"
    strict = ", and no field more" if getattr(kind, "forbid_unknown_fields", False) else ""
    found[name] = f"{'an array' if getattr(kind, 'array_like', True) else 'an object'}{strict}"
    return name


# -- examples


def examples() -> list[tuple[str, bytes]]:
    """The name of a root, and an encoding; of events a list of one."""
    made = []
    for name in ROOTS:
        if (kind := root(name)) is not None:
            encode = msgspec.json.encode if name in JSON else msgspec.msgpack.encode
            made += [(name, encode(each)) for each in _values(shapes.type_info(kind))]
    return made


def _values(kind: shapes.Type) -> Iterator[Any]:
    """What such a type may hold, as plain values: one of each alternative, whatever is beside it."""
    if isinstance(kind, shapes.UnionType):
        for each in kind.types:
            yield from _values(each)
    elif isinstance(kind, shapes.StructType):
        yield from _structs(kind)
    elif isinstance(kind, shapes.NamedTupleType):
        yield from _alternatives([list(_values(field.type)) for field in kind.fields])
    elif isinstance(kind, shapes.TupleType):
        yield from _alternatives([list(_values(each)) for each in kind.item_types])
    elif isinstance(kind, shapes.ListType | shapes.VarTupleType):
        yield from ([each] for each in _values(kind.item_type))
        if not kind.min_length:
            yield []
    elif isinstance(kind, shapes.DictType):
        yield from ({key: each} for key in _values(kind.key_type) for each in _values(kind.value_type))
    else:
        yield from PLAIN[type(kind)](kind)


def _structs(kind: shapes.StructType) -> Iterator[Any]:
    names = [field.encode_name for field in kind.fields]
    for values in _alternatives([list(_values(field.type)) for field in kind.fields]):
        if kind.array_like:
            yield [*([kind.tag] if kind.tag is not None else []), *values]
        else:
            yield dict(zip(names, values, strict=True))


def _alternatives(parts: list[list[Any]]) -> Iterator[list[Any]]:
    """The first of each part, and then each part's others, one after the other."""
    first = [part[0] for part in parts]
    yield first
    for at, part in enumerate(parts):
        for other in part[1:]:
            yield [*first[:at], other, *first[at + 1 :]]


def _integers(kind: Any) -> list[int]:
    least = kind.ge if kind.ge is not None else (kind.gt + 1 if kind.gt is not None else 1)
    return [max(least, 1) if kind.le is None or kind.le >= 1 else least]


PLAIN: dict[Any, Callable[[Any], list[Any]]] = {
    shapes.IntType: _integers,
    shapes.FloatType: lambda kind: [1.5],
    shapes.BoolType: lambda kind: [True, False],
    shapes.StrType: lambda kind: ["a" * max(1, kind.min_length or 1)],
    shapes.BytesType: lambda kind: [b"\x01" * max(1, kind.min_length or 1)],
    shapes.NoneType: lambda kind: [None],
    shapes.AnyType: lambda kind: [1, "a", None],
    shapes.RawType: lambda kind: [1],
    shapes.EnumType: lambda kind: [each.value for each in kind.cls],
    shapes.LiteralType: lambda kind: list(kind.values),
    shapes.CustomType: lambda kind: [[]],
}


# -- what is understood


def understood(given: list[tuple[str, bytes]]) -> list[tuple[bytes, str]]:
    """Of each: its encoding by this version, or why this version does not take it."""
    written, as_read = named("txobserver.bindings:written"), named("txobserver.bindings:as_read")
    coders = {}
    for name in ROOTS:
        if (kind := root(name)) is not None:
            module = msgspec.json if name in JSON else msgspec.msgpack
            coders[name] = module.Decoder(kind, dec_hook=as_read), module.Encoder(enc_hook=written)
    found = []
    for name, data in given:
        if name not in coders:
            found.append((b"", f"{name} is absent"))
            continue
        decoder, encoder = coders[name]
        try:
            found.append((encoder.encode(decoder.decode(data)), ""))
        except (ValueError, TypeError) as error:
            found.append((b"", str(error) or type(error).__name__))
    return found


def main() -> None:
    """One of the three."""
    what = sys.argv[1]
    if what == "catalogue":
        print(json.dumps({"features": features(), "catalogue": catalogue()}))
    elif what == "examples":
        sys.stdout.buffer.write(msgspec.msgpack.encode(examples()))
    elif what == "understood":
        given = msgspec.msgpack.decode(sys.stdin.buffer.read(), type=list[tuple[str, bytes]])
        sys.stdout.buffer.write(msgspec.msgpack.encode(understood(given)))


if __name__ == "__main__":
    main()
