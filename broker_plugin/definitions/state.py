"""What a cluster holds that a file of definitions can say, and how it and the steps of an import pass through a socket.

What is sent to the administration is compressed: it takes lines of a few megabytes.
"""

from __future__ import annotations

import zlib
from base64 import b64decode, b64encode
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from txobserver.access import User
from txobserver.batch import MOST_BYTES, load_step
from txobserver.configuration import BindingSpec, ExchangeSpec, QueueSpec
from txobserver.events import Configure
from txobserver.rules import Rule

LARGEST_STATE: Final = 256 << 20
"""Bytes of a state, before it is compressed"""


class DefinitionsHeld(msgspec.Struct, array_like=True):
    """Everything durable, and who may use it."""

    users: list[User] = []
    rules: list[Rule] = []
    queues: list[QueueSpec] = []
    exchanges: list[ExchangeSpec] = []
    bindings: list[BindingSpec] = []


def packed_state(state: DefinitionsHeld) -> str:
    """As text, for a line."""
    return _packed(msgspec.msgpack.encode(state))


def unpacked_state(text: str) -> DefinitionsHeld:
    """Raises ValueError."""
    return msgspec.msgpack.decode(_unpacked(text, LARGEST_STATE), type=DefinitionsHeld)


def packed_steps(steps: Sequence[Configure]) -> str:
    """The steps of an import, as text."""
    return _packed(load_step(steps).arguments)


def unpacked_steps(text: Any) -> bytes:
    """The arguments of the step whose parts they are. Raises ValueError."""
    if not isinstance(text, str):
        raise ValueError("steps are a text")
    return _unpacked(text, MOST_BYTES)


def _packed(data: bytes) -> str:
    return b64encode(zlib.compress(data, 6)).decode()


def _unpacked(text: str, most: int) -> bytes:
    decompressor = zlib.decompressobj()
    try:
        data = decompressor.decompress(b64decode(text, validate=True), most + 1)
    except zlib.error as error:
        raise ValueError(str(error)) from None
    if len(data) > most or not decompressor.eof:
        raise ValueError(f"it has more than {most} bytes, or does not end")
    return data
