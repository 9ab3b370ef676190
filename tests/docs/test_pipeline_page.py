"""docs/pipeline.md says the columns, kinds and options that there are."""

from __future__ import annotations

import re
from pathlib import Path

from recovery.pipeline.schema import ARROW, KINDS
from recovery.pipeline.source.options import KNOWN, parse_options

PAGE = (Path(__file__).parents[2] / "docs" / "pipeline.md").read_text()


def section(heading: str) -> str:
    return PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]


def rows(heading: str) -> dict[str, str]:
    return dict(re.findall(r"^\| `(\w+)` \| ([^|]*?) ?\| ", section(heading), re.MULTILINE))


def test_every_column_in_order() -> None:
    types = {field.name: str(field.type).partition("[")[0] for field in ARROW}
    assert list(rows("The rows").items()) == list(types.items())


def test_every_kind() -> None:
    assert tuple(re.findall(r"`([\w-]+)`", section("The rows").split("\nKinds: ")[1])) == KINDS


def test_every_option_and_its_default() -> None:
    found = rows("The source")
    assert {name.lower() for name in found} == KNOWN
    options = parse_options({"path": "x"})
    assert found["partitionBytes"] == f"{options.partition_bytes >> 20} MiB"
    assert found["startingOffsets"] == f"`{options.starting}`"
    assert found["failOnDataLoss"] == f"`{str(options.fail_on_data_loss).lower()}`"
    assert found["pushFilters"] == f"`{str(options.push_filters).lower()}`"
    assert (found["columns"], options.selection.columns) == ("all", tuple(ARROW.names))
    assert (found["maxEventsPerBatch"], options.max_events) == ("no limit", None)
    assert (found["cluster"], options.cluster) == ("any", None)
