"""Which store an address names, and what is said of one that names none."""

from __future__ import annotations

import os
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from broker_plugin.coordination import address
from broker_plugin.coordination.address import SCHEMES, in_file, store_at
from broker_plugin.coordination.coordination_process import CoordinationProcess
from broker_plugin.coordination.shared_watchdog import SharedWatchdog
from broker_plugin.coordination.sqlite_coordination import MOMENTS, SqliteCoordination
from broker_plugin.node.config import ConfigError, check_places, parse_config
from ha.membership.record import CoordinationError, Record, RecordStore
from ha.membership.watchdog import Renewals
from recovery.store.files import REAL_FILES
from txobserver.ids import Member

FORMS = "sqlite:///PATH, etcd://HOST:PORT,HOST:PORT/PREFIX"
FIRST = Record("c", 0, 1, None, (Member("a", "1"),))


def path_of(store: RecordStore) -> Path:
    """Of a store in a file."""
    found: Any = store
    return found.path  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    ("named", "path"),
    [
        ("sqlite:///data/c.sqlite", "/data/c.sqlite"),
        ("sqlite:////data/c.sqlite", "/data/c.sqlite"),
        ("sqlite:///a%20b/50%25%3F.db", "/a b/50%?.db"),
        ("/data/c.sqlite", "/data/c.sqlite"),
        ("/data/50%25.db", "/data/50%25.db"),
        ("c.sqlite", "c.sqlite"),
        ("./a:b/c.sqlite", "a:b/c.sqlite"),
        ("/data/a:b", "/data/a:b"),
    ],
)
def test_an_address_names_a_file(named: str, path: str) -> None:
    store = store_at(named)
    assert path_of(store) == Path(path) and str(store) == named
    assert store == in_file(Path(path)) and hash(store) == hash(in_file(Path(path)))


def test_two_names_of_one_file_are_one_store(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path)
    assert store_at(f"sqlite://{tmp_path}/r") == in_file(tmp_path / "link" / "r") != in_file(tmp_path / "s")
    assert in_file(tmp_path) != tmp_path


@pytest.mark.parametrize(
    ("named", "said"),
    [
        ("zk://h:2181/txha", f"no coordination store has the scheme 'zk'; there are {FORMS}"),
        ("SQLite:///r", f"no coordination store has the scheme 'SQLite'; there are {FORMS}"),
        ("://r", f"no coordination store has the scheme ''; there are {FORMS}"),
        ("sqlite://host/r", "sqlite://host/r names no file of this host: write sqlite:///PATH"),
        ("sqlite:/r", f"sqlite:/r is neither an address nor a path: write {FORMS}, or ./sqlite:/r for a file"),
        ("sqlite:r", f"sqlite:r is neither an address nor a path: write {FORMS}, or ./sqlite:r for a file"),
        ("", f"an empty text names no coordination store: write {FORMS}"),
        ("sqlite://", "sqlite:// names no file of this host: write sqlite:///PATH"),
        ("sqlite:///", "sqlite:/// names no file of this host: write sqlite:///PATH"),
        ("sqlite:///r?mode=ro", "sqlite:///r?mode=ro has options, and there are none: write ? as %3F, and # as %23"),
        ("sqlite:///r#1", "sqlite:///r#1 has options, and there are none: write ? as %3F, and # as %23"),
    ],
)
def test_what_names_no_store_is_refused_with_a_sentence(named: str, said: str) -> None:
    with pytest.raises(ValueError) as refused:
        store_at(named)
    assert str(refused.value) == said
    with pytest.raises(ConfigError) as configured:
        config(named)
    assert str(configured.value) == f"/node.toml: coordination: {said}"


def config(named: Any) -> Any:
    text = f'name = "a"\ncluster = "c"\ndir = "/nowhere"\ncoordination = {named!r}\n[peer]\nport = 7\n'
    return parse_config(text, Path("/node.toml"), {}, {})


def test_a_configuration_holds_the_store(tmp_path: Path) -> None:
    for named in (f"sqlite://{tmp_path}/r", f"{tmp_path}/r"):
        assert config(named).coordination == in_file(tmp_path / "r")
    with pytest.raises(ConfigError, match="coordination: must be a text"):
        config(5)
    for place, said in (
        (tmp_path, f"coordination: {tmp_path} is a directory; name a file"),
        (tmp_path / "none" / "r", f"coordination: there is no directory {tmp_path / 'none'}"),
    ):
        with pytest.raises(ConfigError) as refused:
            check_places(config(f"sqlite://{place}"))
        assert str(refused.value) == said


def test_an_adapter_is_found_by_its_scheme(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    store = in_file(Path("r"))
    monkeypatch.setitem(SCHEMES, "other", ("other://HOST", lambda rest: made.append(rest) or store))  # type: ignore[func-returns-value]
    assert store_at("other://h:1/a") is store and made == ["h:1/a"]
    with pytest.raises(ValueError, match=f"there are {FORMS}, other://HOST$"):
        store_at("another://h")
    assert address.SCHEMES is SCHEMES


def test_a_store_in_a_file_is_opened_for_a_command_and_for_a_node(tmp_path: Path) -> None:
    store = in_file(tmp_path / "r")
    with pytest.raises(Exception, match="version 0"):
        store.open("c").compare_and_set(0, FIRST)
    command = store.open("c", create=True)
    node, watchdog = store.serve("c", 7.0, Renewals(0.2, 0.75))
    assert isinstance(command, SqliteCoordination) and isinstance(node, CoordinationProcess) and node._seconds == 7.0
    stored = command.compare_and_set(0, FIRST)
    assert node.read() == stored == store.open("c", confirm=True).read()
    assert isinstance(watchdog, SharedWatchdog) and node._command[-3:] == [str(watchdog.descriptor), "0.2", "0.75"]
    node.close()
    assert store.notes == tmp_path


def test_what_is_set_aside_is_kept_and_another_record_may_be_written(tmp_path: Path) -> None:
    store = in_file(tmp_path / "r")
    for number in (1, 2):
        (tmp_path / "r").write_bytes(b"no database %d" % number)
        (tmp_path / "r-journal").write_bytes(b"pages")
        store.set_aside()
        assert (tmp_path / f"r.set-aside-{number}").read_bytes() == b"no database %d" % number
        assert (tmp_path / f"r.set-aside-{number}-journal").read_bytes() == b"pages"
    assert store.open("c", create=True).compare_and_set(0, FIRST).version == 1
    store.check_expected([])
    (tmp_path / "r").unlink()
    store.check_expected([])  # what was set aside says that it was here
    with pytest.raises(CoordinationError, match="make it first: touch"):
        in_file(tmp_path / "s").check_expected([store])
    in_file(tmp_path / "s").check_expected([in_file(tmp_path / "s")])
    with pytest.raises(CoordinationError, match="is no file"):
        in_file(tmp_path).check_readable()


def test_a_crash_in_the_middle_of_setting_aside_leaves_no_journal_beside_another_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLite would roll the journal back into the record that is written next. At the end the directory is synced."""
    steps: list[str] = []
    rename = Path.rename
    monkeypatch.setattr(Path, "rename", lambda path, to: steps.append(path.name) or rename(path, to))  # type: ignore[func-returns-value]
    monkeypatch.setattr(REAL_FILES, "sync_directory", lambda directory: steps.append(f"sync {directory.name}"))
    (tmp_path / "r").write_bytes(b"no database")
    (tmp_path / "r-journal").write_bytes(b"pages")
    in_file(tmp_path / "r").set_aside()
    assert steps == ["r-journal", "r", f"sync {tmp_path.name}"]


def test_a_directory_that_cannot_be_written_is_refused_before_anything_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[Path, int]] = []
    monkeypatch.setattr(os, "access", lambda path, mode: bool(asked.append((path, mode))))
    with pytest.raises(CoordinationError, match=f"^{tmp_path} cannot be written$"):
        in_file(tmp_path / "r").check_writable()
    assert asked == [(tmp_path, os.W_OK)] and not list(tmp_path.iterdir())


def test_a_damaged_file_is_told_of_by_a_snapshot_and_not_touched(tmp_path: Path) -> None:
    (tmp_path / "r").write_bytes(b"no database at all" * 100)
    store = in_file(tmp_path / "r").open("c")
    found = store.snapshot()
    assert (found.version, found.record, found.content) == (0, None, b"no database at all" * 100)
    assert str(tmp_path / "r") in found.damage and "damaged" in found.damage
    assert [path.name for path in tmp_path.iterdir()] == ["r"] and (tmp_path / "r").read_bytes() == found.content
    store.close()


def test_a_snapshot_is_of_one_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file is written while it is read: what two readings in a row find alike is one of its contents."""
    store = in_file(tmp_path / "r").open("c", create=True)
    stored = store.compare_and_set(0, FIRST)
    torn, whole = {"": b"half"}, {"": (tmp_path / "r").read_bytes()}
    found = [torn, whole, torn, whole, whole]
    monkeypatch.setattr(SqliteCoordination, "_content_now", lambda _: found.pop(0))
    snapshot = store.snapshot()
    assert (snapshot.version, snapshot.record) == (1, stored) and found == []
    readings = count()
    monkeypatch.setattr(SqliteCoordination, "_content_now", lambda _: {"": b"%d" % next(readings)})
    with pytest.raises(CoordinationError, match="changes all the time"):
        store.snapshot()
    assert next(readings) == MOMENTS + 1
    store.close()
