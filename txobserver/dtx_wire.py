"""Class 100, dtx: its methods and their fields, as docs/dtx.md tables them (AMQP 0-10's verbs in 0-9-1's encodings).

pamqp does not know the class. ``register`` makes its methods known to pamqp, so that whatever marshals and unmarshals
by pamqp carries them too: the broker, and clients on aio-pika. A module that needs that calls it when it is imported.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, fields
from typing import Any, ClassVar, NamedTuple

from pamqp import base, commands

from txobserver import outcomes

CLASS = 100

BY_XID, BY_TOKEN = 0, 1
"""Kinds of names in dtx.outcome."""

NOT_DECIDED = 0
DECISIONS = {
    outcomes.BranchOutcome.COMMITTED: 1,
    outcomes.BranchOutcome.ROLLED_BACK: 2,
    outcomes.BranchOutcome.EXPIRED: 3,
    outcomes.BranchOutcome.PENDING: 4,
}
"""The octet of dtx.global-ok; NOT_DECIDED for none."""


class XidFields(NamedTuple):
    """An xid as its three fields stand on the wire: a long and two short strings of bytes. Not checked."""

    format_id: int
    global_id: bytes
    branch_id: bytes


NO_XID = XidFields(0, b"", b"")


class _Reader:
    """Takes one field after the other. Raises ValueError where the bytes end too early, or do not."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0
        self._bits = 0
        self._bit = 8

    def take(self, size: int) -> bytes:
        """The next ``size`` bytes. A run of bits ends here."""
        at, self._at, self._bit = self._at, self._at + size, 8
        if self._at > len(self._data):
            raise ValueError(f"it ends after {len(self._data)} bytes")
        return self._data[at : self._at]

    def number(self, size: int) -> int:
        """An unsigned number of ``size`` bytes."""
        return int.from_bytes(self.take(size), "big")

    def bit(self) -> bool:
        """The next of up to eight bits that share an octet, the lowest first (AMQP 0-9-1, 4.2.5.2)."""
        if self._bit == 8:
            self._bits, self._bit = self.number(1), 0
        value = bool(self._bits >> self._bit & 1)
        self._bit += 1
        return value

    def xid(self) -> XidFields:
        """Three fields."""
        return XidFields(self.number(4), self.take(self.number(1)), self.take(self.number(1)))

    @property
    def left(self) -> int:
        """Bytes that have not been taken."""
        return len(self._data) - self._at


def _sized(data: bytes, size: int) -> bytes:
    return len(data).to_bytes(size, "big") + data


def _xid(value: XidFields) -> bytes:
    return value[0].to_bytes(4, "big") + _sized(value[1], 1) + _sized(value[2], 1)


Octet = int
Short = int
Long = int
LongLong = int
ShortString = bytes
LongString = bytes

_READ: dict[str, Callable[[_Reader], Any]] = {
    "Octet": lambda reader: reader.number(1),
    "Short": lambda reader: reader.number(2),
    "Long": lambda reader: reader.number(4),
    "LongLong": lambda reader: reader.number(8),
    "ShortString": lambda reader: reader.take(reader.number(1)),
    "LongString": lambda reader: reader.take(reader.number(4)),
    "XidFields": _Reader.xid,
    "bool": _Reader.bit,
}
_WRITE: dict[str, Callable[[Any], bytes]] = {
    "Octet": lambda value: value.to_bytes(1, "big"),
    "Short": lambda value: value.to_bytes(2, "big"),
    "Long": lambda value: value.to_bytes(4, "big"),
    "LongLong": lambda value: value.to_bytes(8, "big"),
    "ShortString": lambda value: _sized(value, 1),
    "LongString": lambda value: _sized(value, 4),
    "XidFields": _xid,
}


class DtxMethod(base.Frame):
    """A method of the class; its dataclass fields are its fields on the wire, typed by the names of their types.

    Encoding raises OverflowError for a number or string that its field cannot hold, decoding raises ValueError.
    """

    number: ClassVar[int]
    name: ClassVar[str]
    index: ClassVar[int]
    synchronous: ClassVar[bool]
    valid_responses: ClassVar[list[str]]

    def __init_subclass__(cls) -> None:
        cls.index = CLASS << 16 | cls.number
        cls.name = f"Dtx.{cls.__name__}"
        cls.synchronous = not cls.__name__.endswith("Ok")
        cls.valid_responses = [f"{cls.name}Ok"] if cls.synchronous else []

    def __iter__(self) -> Generator[tuple[str, Any], None, None]:
        return ((field.name, getattr(self, field.name)) for field in fields(self))  # type: ignore[arg-type]

    def __len__(self) -> int:
        return len(fields(self))  # type: ignore[arg-type]

    def marshal(self) -> bytes:
        """The fields as bytes."""
        parts: list[bytes] = []
        bits = 0
        for field in fields(self):  # type: ignore[arg-type]
            value = getattr(self, field.name)
            if field.type != "bool":
                bits = 0
                parts.append(_WRITE[str(field.type)](value))
            elif bits:
                parts[-1] = bytes((parts[-1][0] | bool(value) << bits,))
                bits += 1
            else:
                parts.append(bytes((bool(value),)))
                bits = 1
        return b"".join(parts)

    def unmarshal(self, data: bytes) -> None:
        """Take the fields from bytes."""
        reader = _Reader(data)
        for field in fields(self):  # type: ignore[arg-type]
            setattr(self, field.name, _READ[str(field.type)](reader))
        if reader.left:
            raise ValueError(f"{reader.left} bytes follow its last field")


@dataclass
class Select(DtxMethod):
    number = 10


@dataclass
class SelectOk(DtxMethod):
    number = 11


@dataclass
class Start(DtxMethod):
    number = 20
    xid: XidFields = NO_XID
    join: bool = False
    resume: bool = False


@dataclass
class StartOk(DtxMethod):
    number = 21
    status: Short = 0
    since: LongLong = 0


@dataclass
class End(DtxMethod):
    number = 30
    xid: XidFields = NO_XID
    fail: bool = False
    suspend: bool = False


@dataclass
class EndOk(DtxMethod):
    number = 31
    status: Short = 0


@dataclass
class Commit(DtxMethod):
    number = 40
    xid: XidFields = NO_XID
    one_phase: bool = False


@dataclass
class CommitOk(DtxMethod):
    number = 41
    status: Short = 0


@dataclass
class Forget(DtxMethod):
    number = 50
    xid: XidFields = NO_XID


@dataclass
class ForgetOk(DtxMethod):
    number = 51


@dataclass
class GetTimeout(DtxMethod):
    number = 60
    xid: XidFields = NO_XID


@dataclass
class GetTimeoutOk(DtxMethod):
    number = 61
    timeout: Long = 0


@dataclass
class Prepare(DtxMethod):
    number = 70
    xid: XidFields = NO_XID


@dataclass
class PrepareOk(DtxMethod):
    number = 71
    status: Short = 0


@dataclass
class Recover(DtxMethod):
    number = 80
    go_on: bool = False


@dataclass
class RecoverOk(DtxMethod):
    number = 81
    xids: LongString = b""
    more: bool = False


@dataclass
class Rollback(DtxMethod):
    number = 90
    xid: XidFields = NO_XID


@dataclass
class RollbackOk(DtxMethod):
    number = 91
    status: Short = 0


@dataclass
class SetTimeout(DtxMethod):
    number = 100
    xid: XidFields = NO_XID
    timeout: Long = 0


@dataclass
class SetTimeoutOk(DtxMethod):
    number = 101


@dataclass
class Decide(DtxMethod):
    number = 110
    format_id: Long = 0
    global_id: ShortString = b""
    commit: bool = False


@dataclass
class DecideOk(DtxMethod):
    number = 111
    status: Short = 0


@dataclass
class Global(DtxMethod):
    number = 120
    format_id: Long = 0
    global_id: ShortString = b""
    go_on: bool = False


@dataclass
class GlobalOk(DtxMethod):
    number = 121
    decision: Octet = 0
    branches: LongString = b""
    more: bool = False


@dataclass
class ForgetGlobal(DtxMethod):
    number = 130
    format_id: Long = 0
    global_id: ShortString = b""


@dataclass
class ForgetGlobalOk(DtxMethod):
    number = 131


@dataclass
class Outcome(DtxMethod):
    number = 140
    kind: Octet = 0
    xid: XidFields = NO_XID
    since: LongLong = 0


@dataclass
class OutcomeOk(DtxMethod):
    number = 141
    outcome: Octet = 0


@dataclass
class Token(DtxMethod):
    number = 150
    token: ShortString = b""


@dataclass
class TokenOk(DtxMethod):
    number = 151
    since: LongLong = 0


METHODS: dict[int, type[DtxMethod]] = {each.index: each for each in DtxMethod.__subclasses__()}


def register() -> None:
    """Let pamqp know the class."""
    commands.INDEX_MAPPING.update(METHODS)


def pack_xids(xids: list[XidFields]) -> bytes:
    """Xids one after the other, as recover-ok holds them."""
    return b"".join(map(_xid, xids))


def unpack_xids(data: bytes) -> list[XidFields]:
    """What ``pack_xids`` packed. Raises ValueError."""
    return [xid for xid, _ in _repeated(data, state=False)]


def pack_states(branches: list[tuple[XidFields, int]]) -> bytes:
    """Xids, each with its state as an octet, as global-ok holds them."""
    return b"".join(_xid(xid) + bytes((state,)) for xid, state in branches)


def unpack_states(data: bytes) -> list[tuple[XidFields, int]]:
    """What ``pack_states`` packed. Raises ValueError."""
    return list(_repeated(data, state=True))


def _repeated(data: bytes, state: bool) -> Iterator[tuple[XidFields, int]]:
    reader = _Reader(data)
    while reader.left:
        yield reader.xid(), reader.number(1) if state else 0
