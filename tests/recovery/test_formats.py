"""What earlier versions of txha wrote is read as they read it: stores, coordination records, decision logs.

``tests/fixtures/make_formats.py`` makes a fixture, before a format changes.
"""

from __future__ import annotations

import io
import json
import lzma
import tarfile
from pathlib import Path
from typing import Any

import pytest

from recovery.store.store import Store
from tests.fixtures.formats import CLUSTER, FORMATS, NODE, differences, everything
from tests.support.logs import Posts, frame, open_store
from txobserver.ids import Position

FIXTURES = sorted(path.name for path in FORMATS.iterdir())
WITH_TERMS = "2026-11-22-terms"


def unpacked(name: str, into: Path) -> Path:
    with tarfile.open(fileobj=io.BytesIO(lzma.decompress((FORMATS / name / "files.tar.xz").read_bytes()))) as archive:
        archive.extractall(into, filter="data")
    return into


def expected(name: str) -> Any:
    return json.loads(lzma.decompress((FORMATS / name / "expected.json.xz").read_bytes()))


@pytest.mark.parametrize("name", FIXTURES)
def test_everything_is_read_as_the_version_that_wrote_it_read_it(name: str, tmp_path: Path) -> None:
    assert differences(expected(name), everything(unpacked(name, tmp_path))) == []


@pytest.mark.parametrize("name", FIXTURES)
def test_it_is_read_the_same_once_it_has_been_opened(name: str, tmp_path: Path) -> None:
    """To open is to bring it to the formats of today where need be, and to lose nothing."""
    directory = unpacked(name, tmp_path)
    once, twice = everything(directory), everything(directory)
    assert differences(once, twice) == [] == differences(expected(name), twice)


def opened(directory: Path) -> Store:
    return open_store(directory, Posts(), node=NODE, cluster=CLUSTER)


@pytest.mark.parametrize("name", FIXTURES)
def test_a_store_goes_on(name: str, tmp_path: Path) -> None:
    """It takes events behind those that it has, and keeps both."""
    directory = unpacked(name, tmp_path) / "whole"
    posts = Posts()
    store = open_store(directory, posts, node=NODE, cluster=CLUSTER)
    before = [each.data for each in store.suffix()]
    tail = store.tail
    store.append(frame(tail.sequence + 1, generation=tail.generation), posts.done)
    assert posts.wait() == [None]
    store.close()
    store = opened(directory)
    assert [each.data for each in store.suffix()][: len(before)] == before
    assert store.tail == Position(tail.generation, tail.sequence + 3)
    store.close()


def test_the_fixtures_hold_what_they_are_for() -> None:
    """Every kind of event, an open transaction, a prepared branch, outcomes of each kind, marks, several segments."""
    for name in FIXTURES:
        whole = expected(name)["whole"]
        kinds = {event["type"] for *_, events in whole["frames"] for event in events}
        assert len(kinds) == 18 and len(whole["segments"]) > 2
        assert len(whole["branches"]) == 2 and len(whole["heuristics"]) == 2 and len(whole["undecided"]) == 4
        assert len(whole["transactions"]) == 2 and {each["kind"] for each in whole["remembered"]} == {0, 1, 2, 3}
        assert any(each["mark"] for each in whole["meta"]["summaries"].values())
        assert whole["meta"]["applied"] < whole["tail"] and all(whole["queues"].values())
        assert expected(name)["resyncing"]["meta"]["resyncing"] is True
        assert expected(name)["record"]["version"] == 3
        _, decisions, ended, *_ = expected(name)["decisions"]
        assert len(decisions) == 2 and len(ended) == 1


def test_a_fixture_holds_the_terms_of_removals() -> None:
    """Each that there is, refused steps among them, and what is used."""
    whole = expected(WITH_TERMS)["whole"]
    steps = [each for *_, events in whole["frames"] for each in events if each["type"] == "Configure"]
    terms = [each["terms"] for each in steps if each["terms"] is not None]
    assert any(each["empty"] and each["spared"] for each in terms) and any(each["unused"] for each in terms)
    assert {"queue.use", "exchange.use", "exchange.leave"} <= {each["operation"] for each in steps}
    configuration = whole["meta"]["configuration"]
    assert [each["name"] for each in configuration["queues"].values() if each["used"]] == ["consumed"]
    assert {name: each["used"] for name, each in configuration["exchanges"].items()} == {"shop": False, "used": True}
    assert "orders" in configuration["queues"]


def test_a_difference_is_found() -> None:
    struct = {"type": "T", "a": [1, {"k": 2}]}
    assert differences(struct, {**struct, "gained": 3}) == []
    assert differences(struct, {"type": "T", "a": [1, {"k": 3}]}) == [".a[1].k is 3 and was 2"]
    assert differences(struct, {"type": "T", "a": [1, {"k": 2, "l": 1}]}) == [".a[1].l is new"]
    assert differences(struct, {"type": "T", "a": [1]}) == [".a is [1] and was [1, {'k': 2}]"]
    assert differences(struct, {"type": "T"}) == [".a is gone"]
