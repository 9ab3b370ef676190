"""The messages of queues in LMDB: how one stands there, and how they are read and written in order.

A key is a queue's number and an offset, so that a cursor goes through a queue in order. A value has a checksum over its
key and itself in front, then the replication id, then the message.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Container, Iterator

import lmdb
import msgspec

from txobserver.events import Message
from txobserver.ports.store import END, IDS_BYTES, IDS_PASSED, Above, Asked, At, Entry, Ids, Page, StoreDamaged

SLICE = 500
SLICE_BYTES = 1 << 20
"""Messages, and bytes of them, that are written in one call, in which no other thread runs; or one message."""
_KEY = struct.Struct(">IQ")
_RID = struct.Struct(">Q")
_CRC = struct.Struct(">I")

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(Message).decode

Bytes = bytes | memoryview
"""Of a value as LMDB has it; a view of it is one only within the transaction."""


def sealed(key: bytes, value: bytes) -> bytes:
    """The value with its checksum in front."""
    return _CRC.pack(zlib.crc32(value, zlib.crc32(key))) + value


def unsealed(key: Bytes, data: Bytes) -> Bytes:
    """The value, if its checksum matches; of a view a view, so that nothing is copied. Raises StoreDamaged."""
    value = data[_CRC.size :]
    if len(data) < _CRC.size or _CRC.unpack_from(data)[0] != zlib.crc32(value, zlib.crc32(key)):
        raise StoreDamaged("a checksum in the queue state does not match")
    return value


def offset_of_key(key: Bytes) -> tuple[int, int]:
    """(queue, offset). Raises struct.error."""
    queue, offset = _KEY.unpack(key)
    return queue, offset


def rid_of(data: Bytes) -> int:
    """The replication id in a value, whose checksum is not looked at. Raises struct.error."""
    return int(_RID.unpack_from(data, _CRC.size)[0])


def entry_of(key: Bytes, data: Bytes) -> Entry:
    """What a key and its value stand for. Raises StoreDamaged, struct.error."""
    value = unsealed(key, data)
    return Entry(_RID.unpack_from(value)[0], _decode(value[_RID.size :]))


def value_at(txn: lmdb.Transaction, queue: int, offset: int) -> tuple[bytes, Bytes] | None:
    """The key and the value there, if there is one."""
    key = _KEY.pack(queue, offset)
    data = txn.get(key)
    return None if data is None else (key, data)


def values(txn: lmdb.Transaction, queue: int, after: int, limit: int) -> Iterator[tuple[int, Bytes, Bytes]]:
    """Up to ``limit`` (offset, key, value) above ``after``, in order."""
    with txn.cursor() as cursor:
        more = cursor.set_range(_KEY.pack(queue, after + 1))
        while more and limit > 0:
            key, data = cursor.item()
            number, offset = _KEY.unpack(key)
            if number != queue:
                return
            yield offset, key, data
            more, limit = cursor.next(), limit - 1


def holds(txn: lmdb.Transaction, queue: int, offset: int) -> bool:
    """Whether there is a value. Unlike ``get``, which reads all pages of it, this looks at its key only."""
    with txn.cursor() as cursor:
        return bool(cursor.set_key(_KEY.pack(queue, offset)))


def ids_of(txn: lmdb.Transaction, queue: int, after: int, limit: int, hidden: Container[int]) -> Ids:
    """Up to ``limit`` ids above ``after`` that are not hidden, fewer of large messages, or where many are hidden.

    A value is looked at only when it is known to be among them, since that reads all pages of it. Raises
    struct.error.
    """
    found: list[tuple[int, int]] = []
    touched = passed = 0
    last = after
    with txn.cursor() as cursor:
        there = cursor.set_range(_KEY.pack(queue, after + 1))
        while there:
            number, offset = _KEY.unpack(cursor.key())
            if number != queue:
                break
            if offset not in hidden:
                if len(found) == limit or touched >= IDS_BYTES:
                    return Ids(found, found[-1][0])
                data = cursor.value()
                touched += len(data)
                found.append((offset, rid_of(data)))
            elif (passed := passed + 1) > IDS_PASSED:
                return Ids(found, last)
            last = offset
            there = cursor.next()
    return Ids(found, END)


def page_of(txn: lmdb.Transaction, asked: Asked) -> Page:
    """The messages that are asked for, as many as there is room for. Raises StoreDamaged, struct.error."""
    found: list[tuple[int, Entry]] = []
    taken = 0
    for offset, key, data in _at(txn, asked) if isinstance(asked, At) else _above(txn, asked):
        taken += len(data)
        if found and (taken > asked.max_bytes or (isinstance(asked, Above) and len(found) == asked.limit)):
            return Page(found, True)
        found.append((offset, entry_of(key, data)))
    return Page(found, False)


def _at(txn: lmdb.Transaction, asked: At) -> Iterator[tuple[int, Bytes, Bytes]]:
    for offset in asked.offsets:
        there = value_at(txn, asked.queue, offset)
        if there is not None:
            yield offset, *there


def _above(txn: lmdb.Transaction, asked: Above) -> Iterator[tuple[int, Bytes, Bytes]]:
    """One more than its limit, so that one sees whether there is more."""
    return values(txn, asked.queue, asked.after, asked.limit + 1)


def write_changes(cursor: lmdb.Cursor, queue: int, changed: dict[int, Entry | None]) -> None:
    """In order of offsets, in slices, so that the interpreter is never held for long."""
    items: list[tuple[bytes, bytes]] = []
    size = 0
    for offset in sorted(changed):
        entry, key = changed[offset], _KEY.pack(queue, offset)
        if entry is not None:
            value = sealed(key, _RID.pack(entry.rid) + _encode(entry.message))
            items.append((key, value))
            size += len(value)
            if len(items) == SLICE or size >= SLICE_BYTES:
                cursor.putmulti(items)
                items, size = [], 0
        elif cursor.set_key(key):
            cursor.delete()
    cursor.putmulti(items)


def drop(cursor: lmdb.Cursor, queue: int, kept: Container[int]) -> None:
    """All of a queue's but what is kept. No value is looked at."""
    first = 0
    while cursor.set_range(_KEY.pack(queue, first)):
        number, offset = _KEY.unpack(cursor.key())
        if number != queue:
            return
        if offset in kept:
            first = offset + 1
        else:
            cursor.delete()
