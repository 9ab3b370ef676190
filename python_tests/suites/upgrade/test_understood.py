"""What the present version writes and sends is what the release before it reads, and the other way round."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

import msgspec
import pytest

from python_tests.suites.upgrade import formats
from tests.support.releases import Release, installed, present
from tests.support.since import PASSED_OVER, SINCE, belongs, unannounced

SCRIPT = str(Path(formats.__file__))
Encoding = tuple[str, bytes]


class Told(NamedTuple):
    """What a version says of itself."""

    features: list[str]
    catalogue: dict[str, str]


@pytest.fixture(scope="module")
def release() -> Release:
    return installed()


@pytest.fixture(scope="module")
def told(release: Release) -> tuple[Told, Told]:
    """By the release, and by the present version."""
    before, now = (Told(**json.loads(each.python(SCRIPT, "catalogue"))) for each in (release, present()))
    return before, now


def examples(version: Release) -> list[Encoding]:
    return msgspec.msgpack.decode(version.python(SCRIPT, "examples"), type=list[Encoding])


def read_by(version: Release, given: list[Encoding]) -> list[tuple[bytes, str]]:
    answer = version.python(SCRIPT, "understood", given=msgspec.msgpack.encode(given))
    return msgspec.msgpack.decode(answer, type=list[tuple[bytes, str]])


def test_the_release_is_run_and_not_what_stands_here(release: Release, told: tuple[Told, Told]) -> None:
    code = "import ha, txobserver, recovery, broker_plugin; print(ha.__file__, broker_plugin.__file__)"
    assert release.python("-c", code).decode().count(str(release.modules)) == 2
    assert release.modules != present().modules and release.version != present().version
    assert len(told[0].catalogue) > 300 and told[0].features == ["alarms", "calls", "introductions", "users"]


def test_what_is_new_has_a_feature(release: Release, told: tuple[Told, Told]) -> None:
    """A kind of message, an event, a field, a step, an action, a flag, a format: or it is not new."""
    before, now = told
    new = set(now.features) - set(before.features)
    assert not list(unannounced(before.catalogue, now.catalogue, SINCE[release.version], new))
    assert set(before.features) <= set(now.features), "what the release names must be kept for as long as it is met"


def has_something_new(release: Release, catalogue: dict[str, str], name: str, data: bytes) -> bool:
    """Whether this encoding is of a kind that came since the release, or has got a field since, as ``SINCE`` says."""
    kinds = [each.removeprefix(f"{name}: ") for each in catalogue if each.startswith(f"{name}: ")]
    if name in ("message", "event"):
        value = msgspec.msgpack.decode(data)
        tag = (value[0][0] if value else None) if name == "event" else value[0]
        kinds = [each for each in kinds if each.endswith(f"({tag})")]
    return any(belongs(declared, kind) for declared in SINCE[release.version] for kind in kinds)


def test_the_release_reads_what_is_written_now(release: Release, told: tuple[Told, Told]) -> None:
    """Each alternative of each message, event and record: taken, and written back to the byte."""
    given = [each for each in examples(present()) if not has_something_new(release, told[1].catalogue, *each)]
    assert len(given) > 200
    ours, theirs = read_by(present(), given), read_by(release, given)
    for (name, data), here, there in zip(given, ours, theirs, strict=True):
        assert here[1] == "" and there[1] == "", f"{name} {data!r}: {there[1] or here[1]}"
        assert here[0] == there[0], f"{name} {data!r}: the release made {there[0]!r} of it"


def test_what_the_release_writes_is_read_now_and_written_for_it(release: Release) -> None:
    """What has come since is as it is where its feature is not used: the release takes it, and loses nothing of it."""
    given = examples(release)
    assert len(given) > 200 and {name for name, _ in given} == set(formats.ROOTS)
    theirs = read_by(release, given)
    ours = read_by(present(), [(name, data) for (name, _), (data, _) in zip(given, theirs, strict=True)])
    again = read_by(release, [(name, data) for (name, _), (data, _) in zip(given, ours, strict=True)])
    for (name, data), there, here, back in zip(given, theirs, ours, again, strict=True):
        assert there[1] == here[1] == "", f"{name} {data!r}: {there[1] or here[1]}"
        assert back == there, f"{name} {data!r}: the release takes {here[0]!r} for {back}"


UNKNOWN = {
    "another kind of message": ("message", [99, 1]),
    "another kind of event": ("event", [[99, 1]]),
    "an event with a field more": ("event", [[7, 5, "more"]]),
    "a reason more": ("event", [[4, 1, [[1, 1]], 9]]),
}


@pytest.mark.parametrize("what", UNKNOWN)
def test_the_release_refuses_what_it_does_not_know(release: Release, what: str) -> None:
    """So none of it can be sent or written before every node that gets it has named its feature."""
    name, value = UNKNOWN[what]
    ((data, why),) = read_by(release, [(name, msgspec.msgpack.encode(value))])
    assert data == b"" and why


def test_what_is_new_and_not_named_is_found() -> None:
    """In a catalogue: a kind, a field, a number; what is named is looked for, and its feature too."""
    old = {"Beat (61)": "an array", "Beat (61).a": "0: int", "message: Beat (61)": "it is one", "format of frames": "3"}

    def found(since: dict[str, str], features: set[str], **more: str) -> list[str]:
        new = {**old, **{name.replace("__", "."): value for name, value in more.items()}}
        return list(unannounced(old, new, since, features))

    assert found({}, set()) == []
    assert "name its feature" in found({}, set(), Record__members="10: list")[0]
    assert found({"Record.members": "members"}, {"members"}, Record__members="10: list") == []
    assert "no node names the feature" in found({"Record.members": "members"}, set(), Record__members="10: list")[0]
    assert "writes the record back" in found({"Record.members": PASSED_OVER}, set(), Record__members="10: list")[0]
    assert found({"Identity.x": PASSED_OVER}, set(), Identity__x="9: int") == []
    assert "is as it was" in found({"Identity.x": PASSED_OVER}, set())[0]
    gone = {name: value for name, value in old.items() if "Beat" not in name}
    assert len(list(unannounced(old, gone, {}, set()))) == 3
    assert not list(unannounced(gone, old, {"Beat (61)": "beats"}, {"beats"})), "its fields, and where it can stand"
