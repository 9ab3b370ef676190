"""The store as a whole: refusals that write nothing, SIGKILL at every crash point, full and read-only disks."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import zlib
from pathlib import Path

import pytest

from recovery.reader.log_reader import LogReader
from recovery.store.crash_points import CRASH_POINTS
from recovery.store.identity import FORMAT_VERSION, GIVEN_LATER, lock_directory, read_identity
from recovery.store.segment import segment_firsts
from tests.support.logs import Posts, frame, message, meta_of, open_store
from txobserver.ids import Position
from txobserver.ports.store import Checkpoint, Entry, StoreDamaged, StoreError, StoreFull

ROOT = Path(__file__).parents[3]
OF_OTHERS = ("init", "discard", "cas", "recover", "settle", "rebuild", "archive")
"""Crash points that are not the store's."""


def meta_at(sequence: int, resyncing: bool = False) -> Checkpoint:
    entries: dict[int, Entry | None] = {n: Entry(n, message(f"{n}")) for n in range(1, sequence + 1)}
    meta = meta_of(Position(1, sequence), {1: entries})
    meta.resyncing = resyncing
    return Checkpoint(meta, {1: entries}, [], [], [])


def test_a_restart_replays_from_the_checkpoint(tmp_path: Path) -> None:
    posts = Posts()
    store = open_store(tmp_path / "n", posts)
    assert list(store.suffix()) == []
    for first in (1, 4, 7):
        store.append(frame(first), posts.done)
    store.checkpoint(meta_at(6), posts.done)
    assert posts.wait(4) == [None] * 4
    store.close()
    store = open_store(tmp_path / "n", posts)
    assert [f.first for f in store.suffix()] == [7] and store.tail == Position(1, 9)
    assert store.meta.applied == Position(1, 6) and len(store.base.page(1, -1, 100)) == 6
    store.close()


def test_refusals_write_nothing(tmp_path: Path) -> None:
    posts = Posts()
    open_store(tmp_path / "n", posts).close()
    before = snapshot(tmp_path)
    with pytest.raises(StoreError, match="belongs to node node of cluster cluster"):
        open_store(tmp_path / "n", posts, cluster="another")
    with pytest.raises(StoreError, match="not to node other"):
        open_store(tmp_path / "n", posts, node="other")
    assert snapshot(tmp_path) == before


def snapshot(directory: Path) -> dict[str, bytes]:
    return {str(p): p.read_bytes() for p in sorted(directory.rglob("*")) if p.is_file() and p.suffix != ".mdb"}


def test_two_processes_cannot_share_it(tmp_path: Path) -> None:
    posts = Posts()
    store = open_store(tmp_path / "n", posts)
    with pytest.raises(StoreError, match="in use by another process"):
        open_store(tmp_path / "n", posts)
    store.close()


def test_a_log_without_identity_is_refused(tmp_path: Path) -> None:
    posts = Posts()
    store = open_store(tmp_path / "n", posts)
    list(store.suffix())
    store.append(frame(1), posts.done)
    posts.wait()
    store.close()
    (tmp_path / "n" / "identity.json").unlink()
    with pytest.raises(StoreError, match="without"):
        open_store(tmp_path / "n", posts)


def test_a_first_start_that_was_cut_short_can_be_repeated(tmp_path: Path) -> None:
    (tmp_path / "n" / "log").mkdir(parents=True)
    (tmp_path / "n" / "identity.json.new").write_text("{")
    open_store(tmp_path / "n", Posts()).close()


def test_a_store_without_its_state_is_no_empty_store(tmp_path: Path) -> None:
    """It would be a member that has forgotten what it acknowledged."""
    posts = Posts()
    open_store(tmp_path / "n", posts).close()
    shutil.rmtree(tmp_path / "n" / "state")
    with pytest.raises(StoreDamaged, match="is gone"):
        open_store(tmp_path / "n", posts)


@pytest.mark.parametrize("parts", [("state",), ("log", "state"), ("log", "state", "identity.json")])
def test_a_store_that_is_set_aside_before_it_is_locked_is_not_opened_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, parts: tuple[str, ...]
) -> None:
    """A run that carries a plan out (``txha recover``) has the lock meanwhile. What is left is no member's store."""
    posts = Posts()
    open_store(tmp_path / "n", posts, incarnation="before").close()

    def lock_late(directory: Path) -> int:
        for part in parts:
            (directory / part).rename(tmp_path / part)
        return lock_directory(directory)

    monkeypatch.setattr("recovery.store.store.lock_directory", lock_late)
    if "identity.json" in parts:
        store = open_store(tmp_path / "n", posts, incarnation="after")
        assert store.member.incarnation == "after"
        store.close()
    else:
        with pytest.raises(StoreDamaged, match="is gone"):
            open_store(tmp_path / "n", posts, incarnation="after")
        assert not (tmp_path / "n" / "state").exists()
        os.close(lock_directory(tmp_path / "n"))


ID, ANOTHER = "0123456789abcdef" * 2, "fedcba9876543210" * 2
LATER = GIVEN_LATER + "0123456789abcdef01234567"
FORMAT_1 = '{"format":1,"cluster":"cluster","node":"node","incarnation":"incarnation","check":%d}'


def as_format_1(path: Path) -> None:
    """An identity as version 1 wrote it: the checksum goes over the four fields that it had."""
    path.write_text(FORMAT_1 % zlib.crc32(b"1\0cluster\0node\0incarnation"))


def test_a_store_of_another_cluster_of_the_same_name_is_refused(tmp_path: Path) -> None:
    """``empty_node_founds_anew``, in the store: what was founded apart is another cluster, whatever it is called."""
    posts = Posts()
    open_store(tmp_path / "n", posts, cluster_id=ID).close()
    before = snapshot(tmp_path)
    with pytest.raises(StoreError, match="belongs to another cluster that is also called cluster"):
        open_store(tmp_path / "n", posts, cluster_id=ANOTHER)
    assert snapshot(tmp_path) == before
    open_store(tmp_path / "n", posts, cluster_id=ID).close()


def test_a_store_of_format_1_takes_an_identity_once(tmp_path: Path) -> None:
    posts = Posts()
    store = open_store(tmp_path / "n", posts)
    list(store.suffix())
    store.append(frame(1), posts.done)
    assert posts.wait() == [None]
    store.close()
    as_format_1(tmp_path / "n" / "identity.json")
    found = read_identity(tmp_path / "n")
    assert found is not None and (found.format, found.cluster_id) == (1, "")
    store = open_store(tmp_path / "n", posts, cluster_id=LATER)
    assert store.member == found.member and [f.first for f in store.suffix()] == [1], "its data is as it was"
    store.close()
    taken = read_identity(tmp_path / "n")
    assert taken is not None and (taken.format, taken.cluster_id) == (FORMAT_VERSION, LATER)
    with pytest.raises(StoreError, match="another cluster"):
        open_store(tmp_path / "n", posts, cluster_id=ANOTHER)


def test_a_store_that_knows_no_identity_takes_none_that_was_founded_since(tmp_path: Path) -> None:
    """``an_archive_of_another_cluster_of_the_same_name``: its maker did not say whose it is."""
    for directory, change in ((tmp_path / "now", lambda path: None), (tmp_path / "before", as_format_1)):
        open_store(directory, Posts()).close()
        change(directory / "identity.json")
        before = snapshot(directory)
        with pytest.raises(StoreError, match="was founded since under the same name cluster: name the right"):
            open_store(directory, Posts(), cluster_id=ID)
        assert snapshot(directory) == before


def test_a_start_that_gives_no_identity_leaves_that_file_alone(tmp_path: Path) -> None:
    """Each that opens it without knowing the record's, and each after the first that does."""
    posts, path = Posts(), tmp_path / "n" / "identity.json"
    open_store(tmp_path / "n", posts).close()
    as_format_1(path)
    for cluster_id in ("", LATER, LATER, ""):
        before = path.read_bytes(), path.stat().st_ino
        takes = cluster_id and b"cluster_id" not in before[0]
        open_store(tmp_path / "n", posts, cluster_id=cluster_id).close()
        assert ((path.read_bytes(), path.stat().st_ino) == before) is not bool(takes)
    assert LATER.encode() in path.read_bytes()


def test_an_identity_of_format_1_has_no_identity_of_the_cluster(tmp_path: Path) -> None:
    """Its checksum does not cover one: where there is one, something was damaged."""
    open_store(tmp_path / "n", Posts()).close()
    path = tmp_path / "n" / "identity.json"
    as_format_1(path)
    path.write_text(path.read_text().replace("}", f',"cluster_id":"{ID}"}}'))
    with pytest.raises(StoreDamaged):
        read_identity(tmp_path / "n")


def test_every_flipped_bit_of_the_identity_is_found(tmp_path: Path) -> None:
    posts = Posts()
    open_store(tmp_path / "n", posts, cluster_id=ID).close()
    path = tmp_path / "n" / "identity.json"
    data = path.read_bytes()
    for at in range(len(data) * 8):
        flipped = bytearray(data)
        flipped[at // 8] ^= 1 << at % 8
        path.write_bytes(flipped)
        with pytest.raises(StoreError):
            open_store(tmp_path / "n", posts)


def test_a_slow_queue_does_not_pin_the_log(tmp_path: Path) -> None:
    """What still waits is in the checkpoint; segments past their retention go."""
    posts = Posts()
    store = open_store(tmp_path / "n", posts, segment_bytes=400, retention_seconds=0)
    list(store.suffix())
    for first in range(1, 60, 3):
        store.append(frame(first), posts.done)
    posts.wait(20)
    for path in (tmp_path / "n" / "log").iterdir():
        os.utime(path, (1, 1))
    store.checkpoint(meta_at(60), posts.done)
    assert posts.wait() == [None]
    assert len(segment_firsts(tmp_path / "n" / "log")) == 1
    assert len(store.base.page(1, -1, 100)) == 60
    store.close()


def test_another_process_reads_the_log_while_it_grows(tmp_path: Path) -> None:
    posts = Posts()
    store = open_store(tmp_path / "n", posts, segment_bytes=400)
    list(store.suffix())
    seen = 0
    for first in range(1, 60, 3):
        store.append(frame(first), posts.done)
        posts.wait()
        code = (
            "import sys; from pathlib import Path; from recovery.reader.log_reader import LogReader\n"
            "print([p.sequence for p, _ in LogReader(Path(sys.argv[1])).events(int(sys.argv[2]))])"
        )
        if first % 15 == 1:
            command = [sys.executable, "-c", code, str(tmp_path / "n"), str(seen + 1)]
            answer = subprocess.run(command, capture_output=True, text=True, check=True, cwd=ROOT)
            assert answer.stdout.strip() == str(list(range(seen + 1, first + 3)))
            seen = first + 2
    assert {info.node for info in LogReader(tmp_path / "n").segments()} == {"node"}
    store.close()


WRITER = """
import sys
from pathlib import Path
from tests.support.logs import Posts, frame, open_store
from tests.recovery.store.test_store import meta_at
from txobserver.ids import Position
import os
posts = Posts()
store = open_store(Path(sys.argv[1]), posts, segment_bytes=700, retention_seconds=-1e10)
list(store.suffix())
base = store.tail.sequence
def say(word):
    os.write(1, (word + "\\n").encode())
for n in range(base + 1, base + 40, 3):
    store.append(frame(n), posts.done)
    assert posts.wait() == [None]
    say(f"durable {n + 2}")
    if n % 4 == 0:
        store.checkpoint(meta_at(n + 2), posts.done)
        assert posts.wait() == [None]
        say(f"applied {n + 2}")
last = store.tail.sequence
store.truncate(last - 9, Position(1, last - 9), posts.done)
say(f"cutting {last - 9}")
assert posts.wait() == [None]
store.checkpoint(meta_at(last, resyncing=True), posts.done)
say("resetting 0")
assert posts.wait() == [None]
store.reset(Position(1, last + 100), posts.done)
assert posts.wait() == [None]
store.checkpoint(meta_at(last + 100), posts.done)
assert posts.wait() == [None]
"""


@pytest.mark.parametrize("point", [p for p in CRASH_POINTS if p.split(".")[0] not in OF_OTHERS])
@pytest.mark.parametrize("pass_number", [1, 2])
def test_sigkill_at_every_crash_point(tmp_path: Path, point: str, pass_number: int) -> None:
    """What was reported durable is there after a restart, whole and without a gap; the store opens and goes on."""
    posts = Posts()
    environment = {**os.environ, "TXHA_CRASH_POINT": f"{point}:{pass_number}"}
    command = [sys.executable, "-c", WRITER, str(tmp_path / "n")]
    run = subprocess.run(command, env=environment, capture_output=True, text=True, cwd=ROOT, check=False)
    if pass_number == 1:
        assert run.returncode == -signal.SIGKILL, run.stderr
    told = dict(line.split() for line in run.stdout.splitlines())
    store = open_store(tmp_path / "n", posts, segment_bytes=700)
    found = list(store.suffix())
    assert store.meta.applied.sequence >= int(told.get("applied", 0))
    if "resetting" not in told:
        floor = int(told.get("cutting", told.get("durable", 0)))
        assert store.tail.sequence >= floor
        sequences = [n for f in found for n in range(f.first, f.last + 1)]
        assert sequences == list(range(sequences[0], sequences[0] + len(sequences))) if sequences else True
    if store.meta.resyncing:
        store.reset(Position(1, 500), posts.done)
        assert posts.wait() == [None]
    store.append(frame(store.tail.sequence + 1), posts.done)
    assert posts.wait() == [None]
    store.close()


def mounted(directory: Path, *options: str) -> bool:
    directory.mkdir(exist_ok=True)
    return subprocess.run(["mount", *options, str(directory)], check=False, capture_output=True).returncode == 0


def test_a_full_disk_is_one_clear_error(tmp_path: Path) -> None:
    """A real file system of 1 MiB where mounting is allowed, else a limit on the size of files."""
    disk = tmp_path / "disk"
    command = [sys.executable, "-c", FILLER, str(disk / "n")]
    if mounted(disk, "-t", "tmpfs", "-o", "size=1m", "tmpfs"):
        run = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
        subprocess.run(["umount", str(disk)], check=True)
    else:
        limited = ["bash", "-c", 'ulimit -f 512; trap "" XFSZ; exec "$@"', "limited", *command]
        run = subprocess.run(limited, capture_output=True, text=True, cwd=ROOT, check=False)
    assert "StoreFull: no space is left" in run.stdout, run.stdout + run.stderr


FILLER = """
import sys
from pathlib import Path
from tests.support.logs import Posts, frame, open_store
posts = Posts()
store = open_store(Path(sys.argv[1]), posts)
list(store.suffix())
for n in range(1, 4000, 3):
    store.append(frame(n, size=2000), posts.done)
    error = posts.wait()[0]
    if error:
        print(f"{type(error).__name__}: {error}")
        break
store.append(frame(n + 3), posts.done)
assert posts.wait()[0] is not None, "it goes on as if nothing had happened"
"""


def test_a_read_only_mount_is_one_clear_error(tmp_path: Path) -> None:
    posts = Posts()
    disk = tmp_path / "disk"
    assert os.geteuid() != 0 or mounted(disk, "-t", "tmpfs", "tmpfs"), "root can mount"
    disk.mkdir(exist_ok=True)
    open_store(disk / "n", posts).close()
    if os.geteuid() == 0:
        assert mounted(disk, "-o", "remount,ro")
    else:
        (disk / "n").chmod(0o500)
    try:
        with pytest.raises((StoreFull, StoreError), match="cannot be"):
            open_store(disk / "n", posts)
    finally:
        if os.geteuid() == 0:
            subprocess.run(["umount", str(disk)], check=True)


def test_a_sync_completes_between_the_write_and_the_report(tmp_path: Path) -> None:
    """P11, by the system calls themselves."""
    trace = tmp_path / "trace"
    code = (
        "import os, sys; from pathlib import Path; from tests.support.logs import Posts, frame, open_store\n"
        "posts = Posts(); store = open_store(Path(sys.argv[1]), posts); list(store.suffix())\n"
        "for n in (1, 4, 7):\n"
        "    store.append(frame(n), posts.done); posts.wait(); os.write(1, b'REPORTED')\n"
    )
    command = ["strace", "-f", "-o", str(trace), "-e", "trace=writev,write,fdatasync"]
    subprocess.run(
        [*command, sys.executable, "-c", code, str(tmp_path / "n")], check=True, capture_output=True, cwd=ROOT
    )
    steps = []
    for line in trace.read_text().splitlines():
        if "writev(" in line and "TXHA" in line:
            steps.append("written")
        elif "fdatasync" in line and line.rstrip().endswith("= 0") and steps and steps[-1] == "written":
            steps.append("synced")
        elif "REPORTED" in line:
            steps.append("reported")
    assert steps == ["written", "synced", "reported"] * 3
