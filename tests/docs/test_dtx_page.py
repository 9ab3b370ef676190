"""docs/dtx.md is the code's: methods, ids, fields and their types, statuses, outcomes, codes."""

from __future__ import annotations

import re
from dataclasses import fields
from itertools import groupby
from pathlib import Path

from broker_plugin.embedded.errors import NAMES
from txobserver import dtx_wire as dtx
from txobserver.outcomes import BranchOutcome, XaStatus

TEXT = (Path(__file__).parents[2] / "docs" / "dtx.md").read_text()
TYPES = {"ShortString": "short string", "LongString": "long string", "LongLong": "long long", "bool": "bit"}


def _section(heading: str) -> str:
    return re.split(rf"^#+ {heading}\n", TEXT, flags=re.MULTILINE)[1].split("\n#")[0]


def _shown(method: type[dtx.DtxMethod]) -> str:
    """Fields as the table shows them: bits that follow each other stand together."""
    parts = []
    for kind, group in groupby(fields(method), lambda field: str(field.type)):
        names = [field.name.replace("_", "-") for field in group]
        if kind == "XidFields":
            parts.append("xid")
        elif kind == "bool" and len(names) > 1:
            parts.append(f"{', '.join(names)}: bits")
        else:
            parts += [f"{name}: {TYPES.get(kind, kind.lower())}" for name in names]
    return "; ".join(parts)


def _hyphened(method: type[dtx.DtxMethod]) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "-", method.__name__).lower()


def test_every_method_with_its_fields() -> None:
    rows = re.findall(r"^\| \d.*$", _section("Methods"), re.MULTILINE)
    shown = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows]
    wanted = []
    for index, method in sorted(dtx.METHODS.items()):
        if method.synchronous:
            answer = dtx.METHODS[index + 1]
            request = [str(method.number), _hyphened(method), _shown(method)]
            wanted.append([*request, f"{answer.number} {_hyphened(answer)}", _shown(answer)])
    assert shown == wanted


def test_every_status() -> None:
    section = _section("Statuses")
    shown = {int(number) for number in re.findall(r"^\| (\d) \|", section, re.MULTILINE)}
    assert shown | {XaStatus.HEURISTIC_HAZARD} == set(XaStatus) and "3, xa-heurhaz, is not given" in section


def test_every_outcome() -> None:
    section = _section("Outcomes")
    for outcome in BranchOutcome:
        assert f"{outcome.value} {outcome.name.lower().replace('_', ' ')}" in section


def test_every_code_has_a_name() -> None:
    codes = {int(code) for code in re.findall(r"^\| (\d{3}) \|", _section("Rules and codes"), re.MULTILINE)}
    assert {503, 530, 404, 409, 542} <= codes <= set(NAMES)
