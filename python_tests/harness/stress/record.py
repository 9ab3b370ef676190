"""The history as a Parquet file: every client operation, and every fault. docs/stress.md describes the columns.

``write_history`` and ``read_history`` are inverse where the judge looks: so a file can be judged again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from python_tests.harness.history import (
    FAILED,
    OK,
    OPEN,
    ROLLED_BACK,
    UNKNOWN,
    Attempt,
    Count,
    History,
    Session,
    Sighting,
)
from python_tests.harness.stress.results import Injection

INVOKE, DONE, FAIL, UNKNOWN_TYPE, INFO = "invoke", "ok", "fail", "unknown", "info"
_TYPES = {OK: DONE, FAILED: FAIL, ROLLED_BACK: FAIL, UNKNOWN: UNKNOWN_TYPE, OPEN: UNKNOWN_TYPE}
_WORD = pa.dictionary(pa.int32(), pa.string())

SCHEMA = pa.schema(
    [
        ("time", pa.float64()),
        ("type", _WORD),
        ("operation", _WORD),
        ("client", _WORD),
        ("node", _WORD),
        ("transaction", _WORD),
        ("queue", _WORD),
        ("message", pa.string()),
        ("redelivered", pa.bool_()),
        ("session", pa.int32()),
        ("number", pa.int64()),
        ("note", _WORD),
    ]
)
COLUMNS = tuple(SCHEMA.names)
ROWS = 100_000
"""In a row group"""

Row = dict[str, Any]


class Recorder:
    """Writes one history after the other into a file. A context manager."""

    def __init__(self, path: Path) -> None:
        self._writer = pq.ParquetWriter(path, SCHEMA, compression="zstd")

    def __enter__(self) -> Recorder:
        return self

    def __exit__(self, *error: object) -> None:
        self._writer.close()

    def write(self, history: History, injections: Sequence[Injection] = ()) -> None:
        """All operations of a history, and the faults that it met, in the order of their times."""
        rows = chain(_attempts(history), _sessions(history), _counts(history), _faults(history, injections))
        tables = []
        while chunk := list(islice(rows, ROWS)):
            columns = {name: [row.get(name) for row in chunk] for name in COLUMNS}
            tables.append(pa.table(columns, schema=SCHEMA))
        if tables:
            ordered = pa.concat_tables(tables).unify_dictionaries().sort_by("time")
            self._writer.write_table(ordered, row_group_size=ROWS)


def _attempts(history: History) -> Iterator[Row]:
    for attempt in history.attempts:
        common = {"client": attempt.channel, "node": attempt.node, "transaction": attempt.id}
        began = attempt.first_publish if attempt.first_publish is not None else attempt.answered
        if began is None:
            continue  # it did nothing, not even end
        kind = "publish" if attempt.plain else "rollback" if attempt.on_purpose else "transaction"
        as_meant = attempt.on_purpose and attempt.outcome == ROLLED_BACK
        for place, (message, queue) in enumerate(attempt.messages.items()):
            yield {
                **common, "time": began, "type": INVOKE, "operation": "send", "queue": queue, "message": message,
                "number": place,
            }  # fmt: skip
        for source in attempt.consumed:
            yield {**common, "time": began, "type": INVOKE, "operation": "acknowledge", "message": source}
        if attempt.commit_sent is not None:
            yield {**common, "time": attempt.commit_sent, "type": INVOKE, "operation": "commit"}
        yield {
            **common, "time": attempt.answered if attempt.answered is not None else began, "operation": kind,
            "type": DONE if as_meant else _TYPES[attempt.outcome], "number": attempt.number, "note": attempt.outcome,
        }  # fmt: skip


def _sessions(history: History) -> Iterator[Row]:
    numbers = {id(session): number for number, session in enumerate(history.sessions)}
    for number, session in enumerate(history.sessions):
        common = {"client": session.consumer, "node": session.node, "queue": session.queue, "session": number}
        yield {**common, "time": session.began, "type": INVOKE, "operation": "consume", "number": session.hidden}
        if session.ended is not None:
            outcome = DONE if session.clean else UNKNOWN_TYPE
            yield {**common, "time": session.ended, "type": outcome, "operation": "consume"}
    for place, sighting in enumerate(history.sightings):
        session_ = sighting.session
        yield {
            "time": sighting.at, "type": DONE, "operation": "receive", "queue": sighting.queue, "number": place,
            "message": sighting.id, "redelivered": sighting.redelivered,
            "client": session_.consumer if session_ else None, "node": session_.node if session_ else None,
            "session": numbers[id(session_)] if session_ else None,
        }  # fmt: skip


def _counts(history: History) -> Iterator[Row]:
    for number, count in enumerate(history.counts):
        common = {"client": count.client, "node": count.node, "queue": count.queue, "session": number}
        yield {**common, "time": count.asked, "type": INVOKE, "operation": "count"}
        yield {**common, "time": count.answered, "type": DONE, "operation": "count", "number": count.messages}


def _faults(history: History, injections: Iterable[Injection]) -> Iterator[Row]:
    for kill in history.kills:
        yield {"time": kill, "type": INFO, "operation": "kill of a primary"}
    for each in injections:
        common = {"type": INFO, "node": each.target, "note": each.done}
        yield {**common, "time": each.began, "operation": "fault"}
        yield {**common, "time": each.healed, "operation": "heal"}


def read_history(path: Path) -> History:
    """The history in a file, for the judge. Raises OSError, ValueError for what is not such a file."""
    try:
        file = pq.ParquetFile(path)
    except pa.ArrowInvalid as error:
        raise ValueError(f"{path} is no history: {error}") from error
    if file.schema_arrow.names != list(COLUMNS):
        raise ValueError(f"{path} is no history: its columns are {', '.join(file.schema_arrow.names)}")
    reader = _Reader()
    for batch in file.iter_batches():
        for row in batch.to_pylist():
            reader.take(row)
    return reader.history()


class _Reader:
    """Puts a history together again, row by row."""

    def __init__(self) -> None:
        self._built = History()
        self._attempts: dict[str, Attempt] = {}
        self._sessions: dict[tuple[int, str], Session] = {}
        self._asked: dict[tuple[str | None, str], float] = {}
        self._takers = {
            "send": self._send, "acknowledge": self._acknowledge, "commit": self._commit, "consume": self._consume,
            "receive": self._receive, "count": self._count, "kill of a primary": self._kill,
        }  # fmt: skip

    def take(self, row: Row) -> None:
        """One row, in the order of the file."""
        self._takers.get(row["operation"], self._end)(row)

    def history(self) -> History:
        """What was read."""
        self._built.attempts = sorted(self._attempts.values(), key=lambda attempt: attempt.number)
        return self._built

    def _attempt(self, row: Row) -> Attempt:
        name = row["transaction"]
        if name not in self._attempts:
            self._attempts[name] = Attempt(name, row["client"], 0, row["node"] or "")
        return self._attempts[name]

    def _send(self, row: Row) -> None:
        attempt = self._attempt(row)
        attempt.messages[row["message"]] = row["queue"]
        attempt.first_publish = row["time"]

    def _acknowledge(self, row: Row) -> None:
        self._attempt(row).consumed += (row["message"],)

    def _commit(self, row: Row) -> None:
        self._attempt(row).commit_sent = row["time"]

    def _end(self, row: Row) -> None:
        if row["type"] == INFO:
            return
        attempt = self._attempt(row)
        attempt.plain, attempt.on_purpose = row["operation"] == "publish", row["operation"] == "rollback"
        attempt.number, attempt.outcome, attempt.answered = row["number"], row["note"], row["time"]

    def _consume(self, row: Row) -> None:
        key = (row["session"], row["client"])
        if row["type"] == INVOKE:
            session = Session(row["queue"], row["client"], row["number"], row["time"], node=row["node"] or "")
            self._sessions[key] = session
            self._built.sessions.append(session)
        else:
            self._sessions[key].ended, self._sessions[key].clean = row["time"], row["type"] == DONE

    def _receive(self, row: Row) -> None:
        session = self._sessions.get((row["session"], row["client"]))
        self._built.sightings.append(Sighting(row["queue"], row["message"], row["redelivered"], row["time"], session))

    def _count(self, row: Row) -> None:
        key = (row["client"], row["queue"])
        if row["type"] == INVOKE:
            self._asked[key] = row["time"]
        else:
            asked, client, node = self._asked[key], row["client"] or "", row["node"] or ""
            self._built.counts.append(Count(row["queue"], row["number"], asked, row["time"], client, node))

    def _kill(self, row: Row) -> None:
        self._built.kills.append(row["time"])
