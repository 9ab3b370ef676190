"""Every event of the log is typed, has a sentence, and is written in both formats; no secret gets into any."""

from __future__ import annotations

import io
import json
import logging
import re
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from broker_plugin.cli.echo import STATE_MARKS, is_told
from broker_plugin.logs.events import (
    LoopError,
    NodeEvent,
    NodeFailed,
    OperatorDecides,
    PeerRefused,
    TooFewReady,
)
from broker_plugin.logs.formats import JsonLines, TextLines, fields_of, name_of, set_up, tell
from broker_plugin.logs.prose import _SENTENCES, sentence
from ha.log_events import (
    BackupAttached,
    BackupReady,
    EventsDiscarded,
    FollowingPrimary,
    LogEvent,
    NobodyTakesOver,
    OutOfReadySet,
    RecordRefused,
    StateChanged,
    SteppingDown,
    TransactionAborted,
    TransactionCancelled,
)
from tests.mutants.scope import ROOT

KINDS: tuple[Any, ...] = typing.get_args(LogEvent) + typing.get_args(NodeEvent)
EXAMPLES: dict[Any, Any] = {str: "n%s{0}é", int: 7, float: 1.25, bool: True, tuple[str, ...]: ("a", "b")}
"""A value of each type that a field may have. The text is none that a format could take for its own."""
SECRET = re.compile("password|secret|token|user|credential|url|dsn|config", re.IGNORECASE)
PAGE = (ROOT / "docs" / "log.md").read_text()


def example(kind: Any) -> Any:
    if kind is TooFewReady:  # as many as there are would be none to speak of
        return TooFewReady(7, 9, 8)
    return kind(**{name: EXAMPLES[hint] for name, hint in typing.get_type_hints(kind).items()})


@pytest.fixture
def log() -> Iterator[tuple[logging.Logger, io.StringIO, io.StringIO]]:
    """A logger, and what it has written as text and as JSON."""
    logger, streams = logging.Logger("txha.test"), (io.StringIO(), io.StringIO())
    for stream, formatter in zip(streams, (TextLines("50%s"), JsonLines("node-1")), strict=True):
        handler = logging.StreamHandler(stream)
        handler.setFormatter(formatter)
        logger.addHandler(handler)
    yield (logger, *streams)


@pytest.mark.parametrize("kind", KINDS)
def test_each_event_is_written_in_both_formats(kind: Any, log: tuple[logging.Logger, io.StringIO, io.StringIO]) -> None:
    logger, text, objects = log
    event = example(kind)
    tell(logger, logging.WARNING, event, 3)
    assert text.getvalue().endswith(f" WARNING node=50%s txha.test: generation=3 {sentence(event)}\n")
    (line,) = objects.getvalue().splitlines()
    found = json.loads(line)
    assert list(found) == ["time", "level", "event", "node", "fields", "text", "generation"]
    assert (found["level"], found["event"], found["node"], found["generation"]) == (
        "warning", name_of(event), "node-1", 3,
    )  # fmt: skip
    assert found["fields"] == fields_of(event) and list(found["fields"]) == list(kind._fields)
    assert sentence(event) == found["text"] and found["text"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00", found["time"])


def test_every_event_has_a_sentence_and_a_name_of_its_own() -> None:
    assert set(_SENTENCES) == set(KINDS) and len({name_of(example(kind)) for kind in KINDS}) == len(KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_the_sentence_tells_every_field(kind: Any) -> None:
    """But who the successor is, which a sentence of the reason tells, and what decides its wording."""
    silent = {"successor"} if kind.__name__ == "HandingOver" else set()
    told = sentence(example(kind))
    for name, hint in typing.get_type_hints(kind).items():
        if hint is not bool and name not in silent:
            value = getattr(example(kind), name)
            wanted = "0-7" if name == "transaction" else "a, b" if hint == tuple[str, ...] else str(value)
            assert wanted[:3] in told, (name, told)


@pytest.mark.parametrize("kind", KINDS)
def test_fields_are_plain_and_no_secrets(kind: Any) -> None:
    """A field whose type could hold a password is one that has to be added here."""
    hints = typing.get_type_hints(kind)
    assert set(hints.values()) <= set(EXAMPLES) and not [name for name in hints if SECRET.search(name)]
    assert kind.__doc__


@pytest.mark.parametrize("kind", KINDS)
def test_the_page_has_every_event(kind: Any) -> None:
    fields = ", ".join(f"`{name}`" for name in kind._fields)
    assert f"| `{name_of(example(kind))}` | {fields} | {' '.join(kind.__doc__.split())} |" in PAGE


def test_the_page_shows_a_line_as_it_is() -> None:
    line = json.loads(PAGE.split("```json\n")[1].split("\n```")[0])
    event = BackupAttached("node-2", 46, 47)
    assert (line["event"], line["fields"], line["text"]) == (name_of(event), fields_of(event), sentence(event))
    assert sentence(event) in PAGE.split("```\n")[1]


@pytest.mark.parametrize(
    ("event", "words"),
    [
        (EventsDiscarded(46), "discarding events after 46, which the primary does not have"),
        (TransactionCancelled((3 << 40) + 5, "b", "full"), "is cancelled by b: full"),
        (OperatorDecides("1:g:b", False), "an operator wants branch 1:g:b rolled back"),
        (OperatorDecides("1:g:b", True), "an operator wants branch 1:g:b committed"),
        (PeerRefused("", "it does not greet"), "closing the connection with an unknown peer: it does not greet"),
        (
            NobodyTakesOver(2.06, ("a", "b"), False),
            "for 2.1 s and no other node has taken over: this node waits for a, b",
        ),
        (NobodyTakesOver(2.06, ("a",), True), "this node stands, though it comes behind a"),
    ],
)
def test_sentences_that_differ(event: Any, words: str) -> None:
    assert words in sentence(event)


def test_a_transaction_has_its_id_as_text() -> None:
    """A number of 64 bits is another one where JSON is read by JavaScript."""
    assert fields_of(TransactionAborted((3 << 40) + 5)) == {"transaction": "3-5"}


def test_a_line_has_the_time_at_which_it_was_logged(log: tuple[logging.Logger, io.StringIO, io.StringIO]) -> None:
    """And not that at which it is written."""
    record = logging.makeLogRecord({"msg": "late", "created": 1_000_000_000.25})
    for handler in log[0].handlers:
        handler.handle(record)
    assert json.loads(log[2].getvalue())["time"] == "2001-09-09T01:46:40.250+00:00"


def test_generation_0_is_one_too(log: tuple[logging.Logger, io.StringIO, io.StringIO]) -> None:
    """Of a core that has read no record yet."""
    logger, text, objects = log
    tell(logger, logging.INFO, StateChanged("standalone"), 0)
    assert json.loads(objects.getvalue())["generation"] == 0 and "generation=0 state" in text.getvalue()


def test_an_error_has_its_trace(log: tuple[logging.Logger, io.StringIO, io.StringIO]) -> None:
    logger, text, objects = log
    try:
        raise ValueError("wrong\nin two lines")
    except ValueError as error:
        tell(logger, logging.ERROR, LoopError("the loop"), error=error)
    (line,) = objects.getvalue().splitlines()
    found = json.loads(line)
    assert "Traceback" in found["trace"] and "generation" not in found
    assert "Traceback" in text.getvalue()


def test_what_a_library_logs(log: tuple[logging.Logger, io.StringIO, io.StringIO]) -> None:
    logger, text, objects = log
    logger.warning("took %s s", 3)
    found = json.loads(objects.getvalue())
    assert (found["event"], found["fields"], found["text"]) == ("message", {"logger": "txha.test"}, "took 3 s")
    assert text.getvalue().endswith("txha.test: took 3 s\n")


FORGED = "b\n2026-01-31 23:59:57,120 INFO node=n forged\x1b[2J\u202e\x9b"


def test_what_others_say_is_no_line_of_the_log_and_no_sequence_for_a_terminal(
    log: tuple[logging.Logger, io.StringIO, io.StringIO],
) -> None:
    logger, text, objects = log
    try:
        raise ValueError(FORGED)
    except ValueError as error:
        tell(logger, logging.WARNING, PeerRefused(FORGED, FORGED), 3, error=error)
    logger.warning("a library says %s", FORGED)
    lines = text.getvalue().splitlines()
    assert [line.count("forged") for line in lines if not line.startswith("  ")] == [2, 1]
    assert all(line.isprintable() for line in lines)
    assert not [line for line in lines if line.startswith("2026-01-31 23")]
    first, second = objects.getvalue().split("\n")[:2]
    assert first.isprintable() and second.isprintable()
    assert json.loads(first)["fields"] == {"peer": FORGED, "reason": FORGED, "address": "", "unsaid": 0}


@pytest.mark.parametrize("form", ["text", "json"])
def test_the_terminal_shows_the_same_of_both_formats(form: str) -> None:
    stream, logger = io.StringIO(), logging.Logger("txha.node")
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonLines("n") if form == "json" else TextLines("n"))
    logger.addHandler(handler)
    shown = [StateChanged("active"), FollowingPrimary("b"), SteppingDown("x"), BackupReady("b"), OutOfReadySet("b")]
    for event in [*shown, BackupAttached("b", 1, 2), EventsDiscarded(3)]:
        tell(logger, logging.INFO, event, 1)
    tell(logger, logging.WARNING, RecordRefused("it waits"), 1)
    tell(logger, logging.ERROR, NodeFailed("no space left"))
    told = [is_told(line) for line in stream.getvalue().splitlines()]
    assert told == [True] * len(shown) + [False, False, True, True]
    assert is_told("txha: it refuses to run") and not is_told("{broken") and STATE_MARKS


@pytest.mark.parametrize(("form", "begins"), [("text", "20"), ("json", '{"time": ')])
def test_the_format_is_that_of_the_configuration(
    form: Any, begins: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    stream, root = io.StringIO(), logging.Logger("root")
    monkeypatch.setattr(logging, "root", root)
    set_up("n", "warning", form, stream)
    tell(root, logging.INFO, StateChanged("active"))
    tell(root, logging.WARNING, StateChanged("ready"))
    (line,) = stream.getvalue().splitlines()
    assert line.startswith(begins) and "ready" in line
