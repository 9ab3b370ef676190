"""What docs/spark_queues.md says of options, columns and steps is what the code has."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pydantic.alias_generators import to_camel

from recovery.pipeline.queues.options import Options, QueueSourceOptions, SinkOptions
from recovery.pipeline.queues.rows import COLUMNS
from recovery.pipeline.queues.source import SCHEMA
from recovery.pipeline.queues.steps import STEPS

PAGE = (Path(__file__).parents[2] / "docs" / "spark_queues.md").read_text()


def table(heading: str, head: str) -> dict[str, str]:
    """First and second cell of the rows below a heading and a table's head; each name of a first cell by itself."""
    rows = PAGE.split(f"\n{heading}\n")[1].split("\n## ")[0].split(f"| {head} |")[1].split("\n\n")[0].splitlines()[2:]
    found = {}
    for row in rows:
        names, second = row.strip("| ").split(" | ")[:2]
        found.update(dict.fromkeys(re.findall(r"`([^`]+)`", names), second.strip("`")))
    return found


def shown(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value) or "(empty)"


@pytest.mark.parametrize(("heading", "kind"), [("## The sink", SinkOptions), ("## The source", QueueSourceOptions)])
def test_options_and_their_defaults(heading: str, kind: type[Options]) -> None:
    wanted = {
        to_camel(name): "(required)" if field.is_required() else shown(field.default)
        for name, field in kind.model_fields.items()
    }
    assert table(heading, "option | default | meaning") == wanted


def test_columns() -> None:
    assert set(table("## The sink", "column | type | meaning")) == set(COLUMNS)
    assert set(table("## The source", "column | type | meaning")) == {
        column.split()[0] for column in re.split(r", (?!string>)", SCHEMA)
    }


def test_steps() -> None:
    assert table("## Crash points", "step | what has happened") == STEPS
