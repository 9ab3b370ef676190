"""What an audit reads: nodes, clusters, archives, and Parquet files of rows; and the clients' history."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import reduce
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from recovery.coordinator.decision_log import read_decisions
from recovery.coordinator.names import FORMAT_ID
from recovery.pipeline.audit.audited_branches import Word
from recovery.pipeline.audit.clients import COLUMNS
from recovery.pipeline.errors import PipelineError
from recovery.pipeline.schema import ARROW
from txobserver.ports.store import StoreError
from txobserver.xid import Global


class Rows(NamedTuple):
    """Rows of ``schema.ARROW``. ``costly``: they are decoded from logs, anew each time that they are read."""

    table: DataFrame
    costly: bool


def read_rows(session: SparkSession, paths: Sequence[Path]) -> Rows:
    """All logs below these paths, up to their ends. Raises PipelineError for a path that holds none."""
    parquet = [path for path in paths if is_parquet(path)]
    logs = [path for path in paths if path not in parquet]
    tables = []
    for path in parquet:
        file = path if path.is_file() else next(path.rglob("*.parquet"))
        check_columns(file, set(ARROW.names), "rows of logs")
        tables.append(session.read.parquet(str(path)).select(*ARROW.names))
    if logs:
        reader = session.read.format("txha").option("until", "log")
        tables.append(reader.option("paths", json.dumps([str(path) for path in logs])).load())
    return Rows(reduce(DataFrame.unionByName, tables), bool(logs))


def check_there(paths: Sequence[Path]) -> None:
    """Before anything is started. Raises PipelineError for a path that is not there."""
    for path in paths:
        if not path.exists():
            raise PipelineError(f"there is no directory {path}")


def is_parquet(path: Path) -> bool:
    """Whether there is a Parquet file here or below, and no cluster, no node, and no archive with a manifest."""
    if path.is_file():
        return True
    other = any((path / name).exists() for name in ("log", "cluster.json", "manifest"))
    return not other and next(path.rglob("*.parquet"), None) is not None


def read_history(session: SparkSession, path: Path) -> DataFrame:
    """The clients' history in a file, as ``txha stress`` writes it. Raises PipelineError for what is none."""
    check_columns(path, COLUMNS, "history of clients")
    return session.read.parquet(str(path))


def read_words(path: Path) -> list[Word]:
    """What a coordinator's decision log says, as far as it has not been forgotten there. Raises PipelineError."""
    try:
        _, decisions, ended = read_decisions(path)
    except StoreError as error:
        raise PipelineError(str(error)) from None
    return [
        Word(str(Global(FORMAT_ID, name.encode())), decision.commit, path.name)
        for name, decision in {**ended, **decisions}.items()
    ]


def check_columns(path: Path, wanted: set[str], what: str) -> None:
    """Raises PipelineError unless this is a Parquet file with these columns."""
    try:
        missing = wanted - set(pq.read_schema(path).names)
    except (OSError, pa.ArrowInvalid) as error:
        raise PipelineError(f"{path} holds no {what}: {str(error).splitlines()[0]}") from None
    if missing:
        raise PipelineError(f"{path} holds no {what}: it has no column {min(missing)}")
