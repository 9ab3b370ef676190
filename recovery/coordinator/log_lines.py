"""The lines of a decision log, and what they amount to.

The first line also says of which transactions an abort may be missing: of those that began until then.

A line is a checksum (crc32, in hex) and a JSON object. The checksum begins where that of the line before ended, so a
line that is missing is found as well as one that was changed. The first line names the log. The others are ``intent``,
``commit``, ``abort`` and ``end`` of a transaction, ``resource``: one that takes part, or is no more, and ``moved``: the
log goes on in another file. A log of version 1 has no intents and resources; it is brought forward by another line
that names the log and the version, so that earlier versions decide in it no more.

A line that is appended says how far its writer knows the file to be ``synced``. A power cut may take a page of what no
sync has covered and leave a later one, so there may be a hole with whole lines behind it. They tell such a hole from
damage: if none of them says that what is missing was synced, no process has acted on it, nor on them. The lines with
which a file begins do not say it (they are synced before it has its name), and those of earlier versions do not either:
what stands before them counts as synced.
"""

from __future__ import annotations

import json
import math
import re
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from recovery.coordinator.decisions import ABORT_KEPT, ENDED_KEPT, Decision
from recovery.coordinator.names import read_global_name
from recovery.coordinator.resources import Participant
from txobserver.ports.store import StoreDamaged, StoreError

VERSION = 2
READS = (1, 2)
_CRC_DIGITS = 8
_LINE = re.compile(rb"[0-9a-f]{8} \{.*\}")

NOTHING = -1
"""In the place of a time: no abort has been forgotten."""
_FORGOTTEN = "forgotten"
SYNCED = "synced"
"""How far, in bytes, the writer of a line knows that the file is on the disk."""

Line = dict[str, Any]


class Ended(NamedTuple):
    """A commit that every participant has carried out, and when that was noted (seconds since 1970)."""

    decision: Decision
    at: float


class Intent(NamedTuple):
    """Who had prepared when the last branch was about to, and when that was (seconds since 1970)."""

    participants: tuple[Participant, ...]
    at: float


class LogContents:
    """``whose`` log it is, the ``decisions`` that stand and have not ended, and the commits that have ``ended``.

    ``intents`` of transactions that are not decided, and when they were noted; ``resources`` that take part.

    ``forgotten``: aborts may be missing of transactions whose names say that they began until then (seconds since
    1970).
    """

    def __init__(self) -> None:
        self.whose = ""
        self.forgotten = NOTHING
        self.decisions: dict[str, Decision] = {}
        self.ended: dict[str, Ended] = {}
        self.version = VERSION
        self.intents: dict[str, Intent] = {}
        self.resources: dict[str, None] = {}

    def take(self, line: Line, path: Path) -> None:
        """What a line makes of it; ``path`` is the log's. Raises StoreError."""
        if "log" in line:
            if line["version"] not in READS:
                raise StoreError(f"{path} has version {line['version']}; this txha reads versions 1 to {VERSION}")
            self.version = int(line["version"])
            self.whose, self.forgotten = str(line["log"]), int(line.get(_FORGOTTEN, NOTHING))
        elif "commit" in line:
            who = tuple(Participant(*each) for each in line["participants"])
            self._decide(line["commit"], Decision(True, line["at"], who))
        elif "abort" in line:
            self._decide(line["abort"], Decision(False, line["at"]))
        elif "intent" in line:
            if self.stands(line["intent"]) is None:
                who = tuple(Participant(*each) for each in line["participants"])
                self.intents[line["intent"]] = Intent(who, line["at"])
        elif "resource" in line:
            if line["gone"]:
                self.resources.pop(line["resource"], None)
            else:
                self.resources[line["resource"]] = None
        elif "moved" in line:
            raise StoreError(
                f"{path} is an old file of a log that goes on in a new one: use the name by which the other "
                "coordinators reach it, and mount its directory rather than the file"
            )
        else:
            self._end(line["end"], line.get("at"))

    def _decide(self, name: str, decision: Decision) -> None:
        """The first decision stands, also one that has ended: earlier versions wrote an abort behind its end."""
        self.intents.pop(name, None)
        if name not in self.ended:
            self.decisions[name] = decision

    def _end(self, name: str, at: float | None) -> None:
        decision = self.decisions.pop(name, None)
        if decision is not None and decision.commit:
            self.ended[name] = Ended(decision, decision.at if at is None else at)

    def stands(self, name: str) -> Decision | None:
        """The decision on a transaction, also one that has ended."""
        ended = self.ended.get(name)
        return self.decisions.get(name) if ended is None else ended.decision

    def may_have_forgotten(self, name: str) -> bool:
        """Whether the abort or the intent of this transaction may have been here."""
        return _began(name) <= self.forgotten

    def lines(self, now: float) -> list[Line]:
        """All that have to be kept at this time (seconds since 1970); the first one tells of what is forgotten now."""
        kept: list[Line] = []
        forgotten = self.forgotten
        for name, ended in self.ended.items():
            if ended.at > now - ENDED_KEPT:
                kept += [_line(name, ended.decision), end_line(name, ended.at)]
        for name, each in self.decisions.items():
            if each.commit or max(each.at, _began(name)) > now - ABORT_KEPT:
                kept.append(_line(name, each))
            else:
                forgotten = max(forgotten, int(_began(name)))
        for name, intent in self.intents.items():
            if max(intent.at, _began(name)) > now - ABORT_KEPT:
                kept.append(intent_line(name, intent.participants, intent.at))
            else:
                forgotten = max(forgotten, int(_began(name)))
        kept += [resource_line(name) for name in self.resources]
        return [first_line(self.whose, forgotten), *kept]


def _began(name: str) -> float:
    """Seconds since 1970, as the name says. A name that does not say it is never forgotten."""
    found = read_global_name(name)
    return math.inf if found is None else found.began


def _line(name: str, decision: Decision) -> Line:
    if not decision.commit:
        return {"abort": name, "at": decision.at}
    return {"commit": name, "at": decision.at, "participants": decision.participants}


def first_line(whose: str, forgotten: int = NOTHING) -> Line:
    """The line that names the log. ``forgotten``: see LogContents."""
    line: Line = {"log": whose, "version": VERSION}
    return line if forgotten == NOTHING else {**line, _FORGOTTEN: forgotten}


def end_line(name: str, now: float) -> Line:
    """Every participant has carried out this commit."""
    return {"end": name, "at": now}


def intent_line(name: str, participants: Sequence[Participant], now: float) -> Line:
    """These have prepared, and the last branch is about to."""
    return {"intent": name, "at": now, "participants": participants}


def resource_line(name: str, gone: bool = False) -> Line:
    """This resource takes part in transactions, or is no more."""
    return {"resource": name, "gone": gone}


def moved_line(whose: str) -> Line:
    """The log goes on in another file."""
    return {"moved": whose}


def encode_lines(lines: list[Line]) -> list[bytes]:
    """A whole log."""
    encoded, crc = [], 0
    for each in lines:
        line, crc = encode_line(each, crc)
        encoded.append(line)
    return encoded


def encode_line(line: Line, crc: int) -> tuple[bytes, int]:
    """A line behind one whose checksum is ``crc``, and its own checksum."""
    body = json.dumps(line, separators=(",", ":")).encode()
    crc = zlib.crc32(body, crc)
    return b"%0*x %b\n" % (_CRC_DIGITS, crc, body), crc


def decode_lines(data: bytes, crc: int, path: Path, offset: int) -> Iterator[tuple[Line, int, int]]:
    """Every line with its length and its checksum; ends silently at what a crash cut short.

    That is a last line without an end, or a hole where a page was never written, with what is behind it, if nothing
    there says that it was synced. Raises StoreDamaged for everything else.
    """
    at = 0
    while at < len(data):
        end = data.find(b"\n", at)
        line = data[at : end if end >= 0 else None]
        body = line[_CRC_DIGITS + 1 :]
        if end >= 0 and _is_intact(line, crc):
            crc = zlib.crc32(body, crc)
            yield json.loads(body), end + 1 - at, crc
            at = end + 1
            continue
        cut_short = end < 0 and b"\0\0" not in line and not _was_whole(line, crc)
        if cut_short or _is_unsynced(data[at:], crc, offset + at):
            return
        raise StoreDamaged(f"{path} is damaged at offset {offset + at}; restore it, nothing is decided without it")


def _is_intact(line: bytes, crc: int) -> bool:
    """Whether this is a line without its end, behind one whose checksum is ``crc``."""
    return line[: _CRC_DIGITS + 1] == b"%0*x " % (_CRC_DIGITS, zlib.crc32(line[_CRC_DIGITS + 1 :], crc))


def _is_unsynced(tail: bytes, crc: int, offset: int) -> bool:
    """Whether a crash can have left this behind the last sync: a hole, and no line behind it that knows it synced."""
    if b"\0\0" not in tail:
        return False
    *pieces, _ = tail.split(b"\n")
    before: int | None = crc
    for each in pieces:
        _, hole, line = each.rpartition(b"\0")
        whole = _LINE.fullmatch(line) is not None
        if hole:
            before = None
            if not whole:
                continue  # the end of a line that the hole has cut
        if not whole or (before is not None and not _is_intact(line, before)) or not _knows_less(line, offset):
            return False
        before = int(line[:_CRC_DIGITS], 16)
    return True


def _knows_less(line: bytes, offset: int) -> bool:
    """Whether a line does not say that what stands at ``offset`` was synced."""
    try:
        synced = json.loads(line[_CRC_DIGITS + 1 :]).get(SYNCED)
    except ValueError:
        return False
    return isinstance(synced, int) and synced <= offset


def _was_whole(line: bytes, crc: int) -> bool:
    """Whether this is a whole line whose last byte, its end, was changed."""
    return _is_intact(line[:-1], crc) and line[:-1].endswith(b"}")
