"""The arguments of a call as an operator writes them: ``ARG=VALUE``, each value a text, made into what is declared."""

from __future__ import annotations

from collections.abc import Mapping
from types import UnionType
from typing import Any, Literal, NamedTuple, get_args, get_origin

import msgspec

from txobserver.actions import ActionRegistry

NAME = "name"
"""What an operation is about is given like an argument."""


class BadCall(Exception):
    """No call can be made of what was given; one sentence says why."""


class AskedCall(NamedTuple):
    """A call without its id."""

    operation: str
    version: int
    name: str
    arguments: bytes


def asked_call(registry: ActionRegistry, operation: str, given: Mapping[str, list[str]]) -> AskedCall:
    """What is asked for, in the newest version. Raises BadCall."""
    action = registry.latest(operation)
    if action is None:
        raise BadCall(f"there is no action {operation!r}; there are {', '.join(registry.operations())}")
    texts = dict(given)
    name = _one(NAME, texts.pop(NAME, [""]))
    fields = {field.encode_name: field.type for field in msgspec.structs.fields(action.arguments)}
    for unknown in texts.keys() - fields.keys():
        raise BadCall(f"{operation!r} takes no argument {unknown!r}; it takes {_taken(fields)}")
    values = {key: each if _is_list(fields[key]) else _one(key, each) for key, each in texts.items()}
    try:
        arguments = msgspec.msgpack.encode(msgspec.convert(values, action.arguments, strict=False))
    except msgspec.ValidationError as error:
        raise BadCall(f"{operation!r} takes {_taken(fields)}: {error}") from None
    refusal = registry.refusal(operation, action.version, arguments, name)
    if refusal is not None:
        raise BadCall(refusal)
    return AskedCall(operation, action.version, name, arguments)


def _one(key: str, values: list[str]) -> str:
    if len(values) != 1:
        raise BadCall(f"{key!r} is given {len(values)} times, and has one value")
    return values[0]


def _taken(fields: Mapping[str, Any]) -> str:
    """The arguments, with the values that each may have where they are few."""
    return ", ".join(name + _values(kind) for name, kind in fields.items()) or "no argument"


def _values(kind: Any) -> str:
    if kind is bool:
        return " (true or false)"
    if get_origin(kind) is Literal:
        return f" ({' or '.join(get_args(kind))})"
    return " (as often as you like)" if _is_list(kind) else ""


def _is_list(kind: Any) -> bool:
    return any(get_origin(each) is list for each in (get_args(kind) if isinstance(kind, UnionType) else (kind,)))
