"""What stands in etcd under the record's key: the record, a checksum, and the identity of the etcd that it is in.

etcd does not check what its pages hold, so a flipped bit could change the record; the checksum shows it. The identity
shows a copy: one that was taken from another etcd, as a backup that is restored to a new cluster of members. A copy is
never gone by: it lists the ready set of then (docs/recovery.md).
"""

from __future__ import annotations

import zlib

import msgspec

from ha.membership.record import CoordinationError, ForeignRecord, Record

FORMAT_VERSION, WITH_MEMBERS = 1, 2
"""The second is that of a record that says who is a member: a node of an earlier version would write it back without
(``record_rewritten_without_members``), so it does not read it"""
WAY_OUT = "stop all nodes and write a new one with `txha recover`"


class RecordDamaged(CoordinationError):
    """What is there cannot be gone by; one sentence says why. ``content``: what is there."""

    def __init__(self, why: str, content: bytes) -> None:
        super().__init__(f"{why}: {WAY_OUT}")
        self.why = why
        self.content = content


class _Stored(msgspec.Struct):
    format: int
    etcd: str
    checksum: int
    record: msgspec.Raw


def encoded(record: Record, etcd: int) -> bytes:
    """``etcd``: identity of the cluster of members."""
    body = msgspec.json.encode(record)
    form = FORMAT_VERSION if record.membership is msgspec.UNSET else WITH_MEMBERS
    return msgspec.json.encode(_Stored(form, f"{etcd:x}", zlib.crc32(body), msgspec.Raw(body)))


def decoded(content: bytes, key: str, cluster: str, etcd: int) -> Record | None:
    """The record of ``cluster``; None where an operator has made an empty value. Raises RecordDamaged, ForeignRecord.

    ``etcd``: identity of the cluster of members that gave the answer.
    """
    if not content:
        return None
    try:
        stored = msgspec.json.decode(content, type=_Stored)
    except msgspec.DecodeError:
        raise RecordDamaged(f"the coordination record in {key} is damaged", content) from None
    if stored.format not in (FORMAT_VERSION, WITH_MEMBERS):
        known = f"this version of txha reads {FORMAT_VERSION} and {WITH_MEMBERS}"
        why = f"{key} has format version {stored.format}; {known}"
        raise RecordDamaged(why, content)
    record = _checked(stored, key, content)
    if record.cluster != cluster:
        raise ForeignRecord(
            f"{key} belongs to cluster {record.cluster}, not to cluster {cluster}: name the right prefix, or move that "
            "key away and write a new record with `txha recover`"
        )
    if stored.etcd != f"{etcd:x}":
        raise RecordDamaged(
            f"the coordination record in {key} was copied from another etcd ({stored.etcd}, and this one is {etcd:x}), "
            "and a copy is never gone by",
            content,
        )
    return record


def _checked(stored: _Stored, key: str, content: bytes) -> Record:
    body = bytes(stored.record)
    try:
        if zlib.crc32(body) == stored.checksum:
            record = msgspec.json.decode(body, type=Record)
            if record.version > 0:
                return record
    except msgspec.DecodeError:
        pass
    raise RecordDamaged(f"the coordination record in {key} is damaged", content)


def version_of(content: bytes) -> int | None:
    """The version of a record, of whatever cluster; None where it cannot be read."""
    try:
        return msgspec.json.decode(msgspec.json.decode(content, type=_Stored).record, type=Record).version
    except msgspec.DecodeError:
        return None if content else 0
