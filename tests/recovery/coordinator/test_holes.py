"""A power cut leaves holes among the lines that no sync has covered; a hole in what was synced is damage."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from recovery.coordinator import decision_log as log_module
from recovery.coordinator.decision_log import DecisionLog, read_decisions
from recovery.coordinator.decisions import DecisionUnknown
from recovery.coordinator.log_file import LogFile
from recovery.coordinator.log_lines import encode_lines
from recovery.coordinator.resources import Participant
from recovery.store.files import Files
from tests.support.linux_files import LinuxFiles
from txobserver.ports.store import StoreDamaged

WHO = [Participant("postgresql:1/bank", "database", "77"), Participant("amqp:c", "broker")]
NAMES = ("t1", "t2", "t3")


class Cut(Exception):
    """The power fails."""


class NoSync(Files):
    """The power fails before the first sync."""

    def sync(self, descriptor: int) -> None:
        raise Cut


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "decisions.log"


def unsynced(path: Path, names: tuple[str, ...] = NAMES) -> list[int]:
    """Several coordinators have written a decision each, and synced none. Where each line begins, and the end."""
    DecisionLog(path).close()
    offsets = [path.stat().st_size]
    for name in names:
        log = DecisionLog(path, files=NoSync())
        with pytest.raises(Cut):
            log.decide(name, True, WHO)
        log.close()
        offsets.append(path.stat().st_size)
    return offsets


def make_hole(path: Path, begin: int, end: int) -> None:
    with path.open("r+b") as file:
        file.seek(begin)
        file.write(bytes(end - begin))


def test_a_line_is_lost_in_front_of_lines_that_nobody_acted_on(path: Path) -> None:
    """A sync fails; two others who had the log open append behind the line, and are told by their syncs. Power cut."""
    files = LinuxFiles()
    logs = [DecisionLog(path, files=files) for _ in NAMES]
    logs[2].decide("t0", True)
    files.failing = True
    for log, name in zip(logs, NAMES, strict=True):
        with pytest.raises(DecisionUnknown, match="Input/output"):
            log.decide(name, True, WHO)
        files.failing = False
    for log in logs:
        log.close()
    files.power_cut()
    assert list(read_decisions(path)[1]) == ["t0"]
    run = DecisionLog(path)
    assert [run.decide(name, False) for name in NAMES] == [False] * 3
    assert [found.commit for name in NAMES if (found := DecisionLog(path).decision(name))] == [False] * 3


def test_any_page_of_unsynced_lines_may_be_lost(path: Path) -> None:
    """Whole lines or parts of them. What stands in front of the hole stays; the log goes on behind it."""
    lines = unsynced(path)
    whole = path.read_bytes()
    for begin in (*lines[:-1], *range(lines[0] + 3, lines[-1] - 2, 61)):
        for end in (begin + 2, *(at for at in lines if at > begin + 1), *range(begin + 100, lines[-1], 97)):
            path.write_bytes(whole)
            make_hole(path, begin, min(end, lines[-1]))
            left = sum(at <= begin for at in lines[1:])
            assert list(DecisionLog(path).unfinished()) == list(NAMES[:left])
            assert path.read_bytes() == whole[: lines[left]]
            assert DecisionLog(path).decide("t9", True, WHO)
            assert list(DecisionLog(path).unfinished()) == [*NAMES[:left], "t9"]


def test_a_hole_in_what_was_synced_is_damage(path: Path) -> None:
    """The next line says that it was, whichever process wrote that, and also where it is the last one."""
    log = DecisionLog(path)
    begin = path.stat().st_size
    log.decide("t1", True, WHO)
    end = path.stat().st_size
    log.decide("t2", True, WHO)
    make_hole(path, begin, end)
    with pytest.raises(StoreDamaged, match=f"damaged at offset {begin}"):
        DecisionLog(path)
    with pytest.raises(StoreDamaged):
        read_decisions(path)


def test_a_hole_in_a_log_that_was_made_smaller_is_damage(path: Path) -> None:
    """Its lines were synced before it had its name, also as far as who opens it is concerned."""
    log = DecisionLog(path, compact_bytes=1)
    for name in ("t1", "t2", *(f"ended{number}" for number in range(9))):
        log.decide(name, False)
    old = path.open("rb")
    log._file._replace(path, log._file.contents.lines(0.0))
    assert os.fstat(old.fileno()).st_ino != path.stat().st_ino
    old.close()
    smaller = path.stat().st_size
    for begin, end in ((48, 90), (48, smaller)):
        log = DecisionLog(path, files=NoSync())
        with pytest.raises(Cut):
            log.decide("t9", True, WHO)
        whole = path.read_bytes()
        make_hole(path, begin, end)
        with pytest.raises(StoreDamaged):
            DecisionLog(path)
        path.write_bytes(whole)


def test_a_hole_in_front_of_lines_of_an_earlier_version_is_damage(path: Path) -> None:
    """They do not say what was synced."""
    lines: list[dict[str, Any]] = [{"log": "x", "version": 1}, *({"abort": name, "at": 1.0} for name in NAMES)]
    encoded = encode_lines(lines)
    path.write_bytes(b"".join([encoded[0], bytes(len(encoded[1])), *encoded[2:]]))
    with pytest.raises(StoreDamaged):
        read_decisions(path)


def test_a_changed_line_behind_a_hole_is_damage(path: Path) -> None:
    lines = unsynced(path)
    whole = path.read_bytes()
    for at in range(lines[2] + 20, lines[3], 19):
        path.write_bytes(whole[:at] + bytes((whole[at] ^ 4,)) + whole[at + 1 :])
        make_hole(path, lines[0], lines[1] - 2)
        with pytest.raises(StoreDamaged):
            read_decisions(path)


class Watching(LogFile):
    """``opened``: called as soon as the file has a descriptor."""

    opened: Callable[[], None] = staticmethod(lambda: None)

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name == "_descriptor" and value >= 0:
            self.opened()


def test_a_thread_syncs_the_file_that_has_taken_the_place(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The new file has the descriptor of the old one: what will be written to it must not seem to be synced."""
    begun, read = threading.Event(), threading.Event()

    class InBetween(Files):
        """The sync lasts until the new file has been read."""

        def sync(self, descriptor: int) -> None:
            super().sync(descriptor)
            if threading.current_thread().name == "syncs":
                begun.set()
                assert read.wait(30)

        def rewrite(self, path: Path, offset: int) -> None:
            super().rewrite(path, offset)
            read.set()

    monkeypatch.setattr(log_module, "LogFile", Watching)
    log = DecisionLog(path, files=InBetween())
    file = log._file
    assert isinstance(file, Watching)
    log.decide("t1", True, WHO)
    log.finish("t1")
    end = file.end
    thread = threading.Thread(target=file.sync, args=(end,), name="syncs")
    path.with_name("smaller").write_bytes(encode_lines([{"log": log.whose, "version": 1}])[0])
    path.with_name("smaller").rename(path)
    read.clear()

    def opened() -> None:
        thread.start()
        assert begun.wait(30)

    file.opened = opened  # type: ignore[method-assign]
    with file.locked():
        pass
    thread.join(30)
    assert file._descriptor == end[0], "else nothing is tested"
    assert file._synced <= path.stat().st_size < end[1]
