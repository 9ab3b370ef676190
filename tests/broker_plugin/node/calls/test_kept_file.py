"""The files of a node's calls: replaced whole, another's are refused, damage is told with the way out."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from broker_plugin.node.calls import kept_file
from broker_plugin.node.calls.kept_file import FileOwner, KeptFile
from broker_plugin.node.calls.surroundings import calls_file, local_calls
from recovery.store.files import Files
from txobserver.calls import CallIntent, CallMark, LocalCalls
from txobserver.ids import Position
from txobserver.ports.store import StoreDamaged, StoreError

OWNER = FileOwner("c" * 32, "a", "1")
INTENT = CallIntent(b"i" * 16, "hook", 1, "h", b"\x81\xa3arg\xc0", 2)
KEPT = LocalCalls(CallMark(3, Position(1, 7)), INTENT)
LATER = LocalCalls(CallMark(4, Position(1, 9)))


def file_in(directory: Path, owner: FileOwner = OWNER) -> KeptFile[LocalCalls]:
    return calls_file(directory, owner)


def test_it_is_read_as_it_was_written(tmp_path: Path) -> None:
    assert file_in(tmp_path).read() is None and local_calls(file_in(tmp_path), OWNER) == LocalCalls()
    file_in(tmp_path).write(KEPT)
    assert file_in(tmp_path).read() == (OWNER, KEPT)
    file_in(tmp_path).write(LATER)
    assert local_calls(file_in(tmp_path), OWNER) == LATER
    assert os.listdir(tmp_path) == ["calls.json"] and not (tmp_path / "calls.json").stat().st_mode & 0o007


def test_a_crash_between_write_and_rename_leaves_what_was_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one that leaves half of the new file; the next write takes its place."""
    file_in(tmp_path).write(KEPT)

    def killed(path: Path, to: Path) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Path, "rename", killed)
        with pytest.raises(KeyboardInterrupt):
            file_in(tmp_path).write(LATER)
    new = tmp_path / "calls.json.new"
    new.write_bytes(new.read_bytes()[:20])
    assert local_calls(file_in(tmp_path), OWNER) == KEPT
    file_in(tmp_path).write(LATER)
    assert local_calls(file_in(tmp_path), OWNER) == LATER and not new.exists()


def test_it_is_durable_before_it_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    sync, rename, directory = os.fsync, Path.rename, Files.sync_directory
    monkeypatch.setattr(kept_file.os, "fsync", lambda fd: (done.append("file"), sync(fd)))
    monkeypatch.setattr(Path, "rename", lambda path, to: (done.append("rename"), rename(path, to))[1])
    monkeypatch.setattr(Files, "sync_directory", lambda me, path: (done.append("directory"), directory(me, path))[1])
    file_in(tmp_path).write(KEPT)
    assert [each for each in done if each != "file"] == ["rename", "directory"] and done[0] == "file"


@pytest.mark.parametrize("at", ["write", "fsync", "rename", "sync_directory"])
def test_what_fails_may_be_done_again(at: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file_in(tmp_path).write(KEPT)

    def full(*given: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    where: Any = {"write": Files, "fsync": kept_file.os, "rename": Path, "sync_directory": Files}[at]
    with monkeypatch.context() as patched:
        patched.setattr(where, at, full)
        with pytest.raises(OSError, match="No space"):
            file_in(tmp_path).write(LATER)
    assert local_calls(file_in(tmp_path), OWNER) in (KEPT, LATER)
    file_in(tmp_path).write(LATER)
    assert local_calls(file_in(tmp_path), OWNER) == LATER


def test_every_flipped_bit_is_told_with_the_way_out(tmp_path: Path) -> None:
    file_in(tmp_path).write(KEPT)
    path = tmp_path / "calls.json"
    whole = path.read_bytes()
    for at in range(len(whole) - 1):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        with pytest.raises(StoreError) as refused:
            file_in(tmp_path).read()
        assert str(path) in str(refused.value), at
    for cut in (0, 1, len(whole) // 2, len(whole) - 3):
        path.write_bytes(whole[:cut])
        with pytest.raises(StoreDamaged, match="move it away: this node then runs all calls"):
            file_in(tmp_path).read()


def test_another_s_file_is_refused(tmp_path: Path) -> None:
    """A directory that was copied from another node, or a cluster founded anew under the same name."""
    file_in(tmp_path).write(KEPT)
    for other in (OWNER._replace(node="b"), OWNER._replace(cluster_id="d" * 32)):
        with pytest.raises(StoreError, match=f"is of node a of the cluster of identity {'c' * 32}.*move it away"):
            file_in(tmp_path, other).read()


def test_one_of_a_later_version_is_no_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(kept_file, "FORMAT_VERSION", 2)
        file_in(tmp_path).write(KEPT)
    with pytest.raises(StoreError, match="start the node with the version that wrote it") as refused:
        file_in(tmp_path).read()
    assert not isinstance(refused.value, StoreDamaged)


def test_wiped_store_inherits_cursor(tmp_path: Path) -> None:
    """A node with a new store has run nothing; what it had begun on this machine is still to be settled."""
    file_in(tmp_path).write(KEPT)
    new = OWNER._replace(incarnation="2")
    assert local_calls(file_in(tmp_path, new), new) == LocalCalls(intent=INTENT)


def test_a_file_that_cannot_be_read_is_no_damage(tmp_path: Path) -> None:
    (tmp_path / "calls.json").mkdir()
    with pytest.raises(StoreError, match=r"calls\.json cannot be read: Is a directory") as refused:
        file_in(tmp_path).read()
    assert not isinstance(refused.value, StoreDamaged)
