"""The lines of a decision log, and what they amount to.

A line is a checksum (crc32, in hex) and a JSON object. The checksum begins where that of the line before ended, so a
line that is missing is found as well as one that was changed. The first line names the log. The others are ``commit``,
``abort`` and ``end`` of a transaction, and ``moved``: the log goes on in another file.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from recovery.coordinator.decisions import ABORT_KEPT, ENDED_KEPT, Decision
from recovery.coordinator.resources import Participant
from txobserver.store import StoreDamaged, StoreError

VERSION = 1
_CRC_DIGITS = 8

Line = dict[str, Any]


class Ended(NamedTuple):
    """A commit that every participant has carried out, and when that was noted (seconds since 1970)."""

    decision: Decision
    at: float


class LogContents:
    """``whose`` log it is, the ``decisions`` that stand and have not ended, and the commits that have ``ended``."""

    def __init__(self) -> None:
        self.whose = ""
        self.decisions: dict[str, Decision] = {}
        self.ended: dict[str, Ended] = {}

    def take(self, line: Line, path: Path) -> None:
        """What a line makes of it; ``path`` is the log's. Raises StoreError."""
        if "log" in line:
            if line["version"] != VERSION:
                raise StoreError(f"{path} has version {line['version']}; this txha reads version {VERSION}")
            self.whose = str(line["log"])
        elif "commit" in line:
            who = tuple(Participant(*each) for each in line["participants"])
            self._decide(line["commit"], Decision(True, line["at"], who))
        elif "abort" in line:
            self._decide(line["abort"], Decision(False, line["at"]))
        elif "moved" in line:
            raise StoreError(
                f"{path} is an old file of a log that goes on in a new one: use the name by which the other "
                "coordinators reach it, and mount its directory rather than the file"
            )
        else:
            self._end(line["end"], line.get("at"))

    def _decide(self, name: str, decision: Decision) -> None:
        """The first decision stands, also one that has ended: earlier versions wrote an abort behind its end."""
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

    def lines(self, now: float) -> list[Line]:
        """The lines that have to be kept at this time (seconds since 1970), behind the first one."""
        kept: list[Line] = []
        for name, ended in self.ended.items():
            if ended.at > now - ENDED_KEPT:
                kept += [_line(name, ended.decision), end_line(name, ended.at)]
        for name, each in self.decisions.items():
            if each.commit or each.at > now - ABORT_KEPT:
                kept.append(_line(name, each))
        return kept


def _line(name: str, decision: Decision) -> Line:
    if not decision.commit:
        return {"abort": name, "at": decision.at}
    return {"commit": name, "at": decision.at, "participants": decision.participants}


def first_line(whose: str) -> Line:
    """The line that names the log."""
    return {"log": whose, "version": VERSION}


def end_line(name: str, now: float) -> Line:
    """Every participant has carried out this commit."""
    return {"end": name, "at": now}


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

    That is a last line without an end, or with a hole where a page was never written. Raises StoreDamaged for
    everything else.
    """
    at = 0
    while at < len(data):
        end = data.find(b"\n", at)
        line = data[at : end if end >= 0 else None]
        body = line[_CRC_DIGITS + 1 :]
        intact = line[: _CRC_DIGITS + 1] == b"%0*x " % (_CRC_DIGITS, zlib.crc32(body, crc))
        if end >= 0 and intact:
            crc = zlib.crc32(body, crc)
            yield json.loads(body), end + 1 - at, crc
            at = end + 1
            continue
        last = end < 0 or end + 1 == len(data)
        if last and (b"\0\0" in data[at:] or (end < 0 and not _was_whole(line, crc))):
            return
        raise StoreDamaged(f"{path} is damaged at offset {offset + at}; restore it, nothing is decided without it")


def _was_whole(line: bytes, crc: int) -> bool:
    """Whether this is a whole line whose last byte, its end, was changed."""
    body = line[_CRC_DIGITS + 1 : -1]
    return line[: _CRC_DIGITS + 1] == b"%0*x " % (_CRC_DIGITS, zlib.crc32(body, crc)) and body.endswith(b"}")
