"""What the options of ``format("txha")`` mean; ``docs/pipeline.md`` lists them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal, cast

from recovery.pipeline.errors import PipelineError, nearest
from recovery.pipeline.node import Until
from recovery.pipeline.rows.kinds import KINDS
from recovery.pipeline.schema import ARROW
from recovery.pipeline.selection import ColumnCondition, Selection
from recovery.reader.tls_socket import ReaderCertificate
from txobserver.ids import COUNTER_BITS, generated_id

PARTITION_BYTES = 32 << 20
LISTED = ("node", "queue", "kind", "xid", "transaction")
CERTIFICATE = ("certificateFile", "keyFile", "authorityFile")
"""The options for TLS, which belong together"""
NAMES = (
    "path",
    "paths",
    "nodes",
    "cluster",
    "secretfile",
    *CERTIFICATE,
    "until",
    "from",
    "to",
    "partitionBytes",
    "startingOffsets",
    "maxEventsPerBatch",
    "failOnDataLoss",
    "columns",
    "pushFilters",
    *LISTED,
)
"""The options, as people write them; Spark gives their names in lower case."""
KNOWN = {name.lower() for name in NAMES}


@dataclass(frozen=True)
class LogSourceOptions:
    """``paths``: directories of nodes, or of clusters of them. ``nodes``: host:port of running nodes' peer ports, with
    the file of the secret by which they are read, or the reader's certificate."""

    paths: tuple[str, ...]
    nodes: tuple[str, ...]
    cluster: str | None
    until: Until | None
    selection: Selection
    partition_bytes: int
    starting: Literal["earliest", "latest"] | dict[str, Any]
    max_events: int | None
    fail_on_data_loss: bool
    push_filters: bool
    secret_file: str | None
    certificate: ReaderCertificate | None


def parse_options(given: Mapping[str, str]) -> LogSourceOptions:
    """Raises PipelineError with a sentence for people."""
    options = {key.lower(): value for key, value in given.items()}
    if unknown := sorted(set(options) - KNOWN):
        near = nearest(unknown[0], NAMES)
        raise PipelineError(f"the source txha has no option {unknown[0]!r}; the nearest is {near}")
    named = (*_listed(options.get("path", "")), *_listed(options.get("paths", "")))
    paths = tuple(str(Path(path).absolute()) for path in named)  # tasks run elsewhere, in directories of their own
    nodes = _listed(options.get("nodes", ""))
    if not paths and not nodes:
        raise PipelineError(
            'the source txha reads directories, .load("…"), or running nodes, .option("nodes", "host:port")'
        )
    until = options.get("until")
    if until not in ("log", "commit", None):
        raise PipelineError(f"until is log or commit, not {until!r}")
    return LogSourceOptions(
        paths,
        nodes,
        options.get("cluster"),
        cast(Until | None, until),
        Selection(tuple(_conditions(options)), _columns(options.get("columns"))),
        _number(options, "partitionbytes") or PARTITION_BYTES,
        _starting(options.get("startingoffsets", "earliest")),
        _number(options, "maxeventsperbatch"),
        _truth("failOnDataLoss", options.get("failondataloss", "true")),
        _truth("pushFilters", options.get("pushfilters", "false")),
        str(Path(options["secretfile"]).absolute()) if "secretfile" in options else None,
        _certificate(options),
    )


def _certificate(options: Mapping[str, str]) -> ReaderCertificate | None:
    missing = [name for name in CERTIFICATE if not options.get(name.lower())]
    if missing == list(CERTIFICATE):
        return None
    if missing:
        raise PipelineError(f"{', '.join(CERTIFICATE)} belong together: {' and '.join(missing)} must be given too")
    certificate, key, authority = (str(Path(options[name.lower()]).absolute()) for name in CERTIFICATE)
    return ReaderCertificate(certificate, key, authority)


def _listed(text: str) -> tuple[str, ...]:
    """Items of a JSON array, as ``load`` makes of a list of paths, or between commas."""
    if text.startswith("["):
        try:
            return tuple(str(item) for item in json.loads(text))
        except ValueError as error:
            raise PipelineError(f"{text!r} is no list: {error}") from None
    return tuple(item for each in text.split(",") if (item := each.strip()))


def _columns(text: str | None) -> tuple[str, ...]:
    if text is None:
        return tuple(ARROW.names)
    found = _listed(text)
    if unknown := [name for name in found if name not in ARROW.names]:
        raise PipelineError(f"there is no column {unknown[0]!r}; there are {', '.join(ARROW.names)}")
    if not found or len(set(found)) < len(found):
        raise PipelineError(f"columns names each column once, not {text!r}")
    return found


def _number(options: Mapping[str, str], name: str) -> int | None:
    text = options.get(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and int(text) > 0):
        raise PipelineError(f"{name} is a number above 0, not {text!r}")
    return int(text)


def _truth(name: str, text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise PipelineError(f"{name} is true or false, not {text!r}")
    return text.lower() == "true"


def _starting(text: str) -> Literal["earliest", "latest"] | dict[str, Any]:
    if text == "earliest":
        return "earliest"
    if text == "latest":
        return "latest"
    try:
        offsets = json.loads(text)
    except ValueError:
        offsets = None
    if not isinstance(offsets, dict):
        raise PipelineError(f"startingOffsets is earliest, latest or the JSON of offsets, not {text!r}")
    return offsets


def _conditions(options: Mapping[str, str]) -> list[ColumnCondition]:
    found = [ColumnCondition(name, "in", _values(name, options[name])) for name in LISTED if name in options]
    if "from" in options:
        found.append(_edge(options["from"], ">="))
    if "to" in options:
        found.append(_edge(options["to"], "<="))
    return found


def _values(name: str, text: str) -> tuple[Any, ...]:
    items = _listed(text)
    if name == "kind" and (unknown := [item for item in items if item not in KINDS]):
        raise PipelineError(
            f"there is no kind {unknown[0]!r}; the nearest is {nearest(unknown[0], KINDS)}, and there are "
            f"{', '.join(sorted(KINDS))}"
        )
    return tuple(transaction_number(item) for item in items) if name == "transaction" else items


def transaction_number(text: str) -> int:
    """A transaction's number, also from how people are shown it: ``generation-counter``. Raises PipelineError."""
    parts = text.split("-")
    if all(part.isascii() and part.isdigit() for part in parts):
        if len(parts) == 1:
            return int(text)
        if len(parts) == 2 and int(parts[1]) < 1 << COUNTER_BITS:
            return generated_id(int(parts[0]), int(parts[1]))
    raise PipelineError(
        f"{text!r} is no transaction: one is a number, or reads generation-counter as in `txha tx list`"
    )


def _edge(text: str, operation: Literal["<=", ">="]) -> ColumnCondition:
    """A position or a time; both ends are inclusive. A time without a zone is UTC."""
    if text.isascii() and text.isdigit():
        return ColumnCondition("position", operation, int(text))
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise PipelineError(f"{text!r} is neither a position nor a time such as 2026-01-31T03:00") from None
    return ColumnCondition("time", operation, time if time.tzinfo else time.replace(tzinfo=UTC))
