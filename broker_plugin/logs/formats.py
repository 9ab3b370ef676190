"""The log of a node: each event as a line of text, or as a line of JSON with its fields."""

from __future__ import annotations

import json
import logging
import re
import sys
from datetime import UTC, datetime
from typing import Any, Literal, TextIO

from broker_plugin.logs.events import Event
from broker_plugin.logs.prose import sentence
from txobserver.ids import id_text
from txobserver.printable import json_line, printable

Format = Literal["text", "json"]
Field = str | int | float | bool | list[str]
MESSAGE = "message"
"""The name, in JSON, of a line that is no event of ours: a library's."""
_INNER_CAPITAL = re.compile(r"(?<!^)(?=[A-Z])")


class EventMessage:
    """An event as ``logging`` takes it: a message that is made into words where it is printed."""

    def __init__(self, event: Event, generation: int | None) -> None:
        self.event = event
        self.generation = generation

    def __str__(self) -> str:
        words = sentence(self.event)
        return words if self.generation is None else f"generation={self.generation} {words}"


def tell(
    log: logging.Logger,
    level: int,
    event: Event,
    generation: int | None = None,
    error: BaseException | None = None,
) -> None:
    """Log an event. ``generation``: the node's, where it is the core that speaks; ``error``: shown with its trace."""
    log.log(level, EventMessage(event, generation), exc_info=error)


def name_of(event: Event) -> str:
    """``StateChanged`` is called ``state_changed``."""
    return _INNER_CAPITAL.sub("_", type(event).__name__).lower()


def fields_of(event: Event) -> dict[str, Field]:
    """The fields as JSON has them; a transaction's id as people write it."""
    found: dict[str, Field] = {}
    for name, value in event._asdict().items():
        found[name] = id_text(value) if name == "transaction" else list(value) if isinstance(value, tuple) else value
    return found


class JsonLines(logging.Formatter):
    """One object a line: time (UTC), level, event, node, fields; generation, text, and the trace of an error."""

    def __init__(self, node: str) -> None:
        super().__init__()
        self._node = node

    def format(self, record: logging.LogRecord) -> str:
        """The line."""
        told = record.msg if isinstance(record.msg, EventMessage) else None
        line: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "event": name_of(told.event) if told else MESSAGE,
            "node": self._node,
            "fields": fields_of(told.event) if told else {"logger": record.name},
            "text": sentence(told.event) if told else record.getMessage(),
        }
        if told and told.generation is not None:
            line["generation"] = told.generation
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        return json_line(json.dumps(line, ensure_ascii=False))


class TextLines(logging.Formatter):
    """Time, level, node, logger and the sentence in one line; the trace of an error behind it, each line indented.

    So what begins with a time is a line of the log, whatever a client, a peer or an error has said.
    """

    def __init__(self, node: str) -> None:
        super().__init__(f"%(asctime)s %(levelname)s node={printable(node).replace('%', '%%')} %(name)s: %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:
        """The line without a trace."""
        record.message = printable(record.message)
        return super().formatMessage(record)

    def formatException(self, ei: Any) -> str:
        """The trace of an error, as ``sys.exc_info`` tells it."""
        return "\n".join(f"  {printable(line)}" for line in super().formatException(ei).split("\n"))


def set_up(node: str, level: str, form: Format, stream: TextIO | None = None) -> None:
    """Let this process log what is of this level or above, to ``stream``; None: to standard error."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonLines(node) if form == "json" else TextLines(node))
    logging.basicConfig(level=level.upper(), handlers=[handler])
