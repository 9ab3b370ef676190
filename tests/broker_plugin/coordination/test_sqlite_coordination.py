"""The coordination record in SQLite: compare-and-set between processes, synced before it is reported."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import threading
import zlib
from pathlib import Path

import msgspec
import pytest
from msgspec.structs import replace

from broker_plugin.coordination import sqlite_coordination
from broker_plugin.coordination.sqlite_coordination import SqliteCoordination
from ha.membership.members import ClusterNode, Membership
from ha.membership.record import CasConflict, CoordinationError, Record
from txobserver.ids import Member

ROOT = Path(__file__).parents[3]
A, B = Member("a", "1"), Member("b", "1")


def record(generation: int = 1, *ready: Member) -> Record:
    return Record("c", 0, generation, A, ready or (A,))


def test_versions_rise_by_one_and_a_stale_one_is_told_the_current(tmp_path: Path) -> None:
    one, two = SqliteCoordination(tmp_path / "r", "c", create=True), SqliteCoordination(tmp_path / "r", "c")
    assert one.read() is None
    first = one.compare_and_set(0, record())
    assert first.version == 1 and two.read() == first
    second = two.compare_and_set(1, record(1, A, B))
    assert second.version == 2
    with pytest.raises(CasConflict) as conflict:
        one.compare_and_set(1, record(9))
    assert conflict.value.current == second
    with pytest.raises(CasConflict):
        one.compare_and_set(0, record(9))
    assert one.read() == second


def test_a_change_of_the_same_version_by_another_history_is_refused(tmp_path: Path) -> None:
    """A copy that took the record's place has come to the version that a node went by, under another primary."""
    store = SqliteCoordination(tmp_path / "r", "c", create=True)
    there = store.compare_and_set(0, record(4, A, B))
    for other in (replace(there, primary=B), replace(there, generation=3)):
        with pytest.raises(CasConflict) as conflict:
            store.compare_and_set(1, other)
        assert conflict.value.current == there
    assert store.compare_and_set(1, replace(there, generation=5, primary=B)).version == 2


def test_a_file_that_is_not_there_holds_no_record_and_is_not_made(tmp_path: Path) -> None:
    """Only founding makes it (``empty_node_founds_anew``): a lost record stays lost until an operator acts."""
    store = SqliteCoordination(tmp_path / "r?%41 b", "c")
    assert store.read() is None
    with pytest.raises(CasConflict) as conflict:
        store.compare_and_set(0, record())
    assert conflict.value.current is None and list(tmp_path.iterdir()) == []
    (tmp_path / "r?%41 b").touch()
    assert store.read() is None, "a founding that was cut short, or a file that was emptied"
    founding = SqliteCoordination(tmp_path / "r?%41 b", "c", create=True)
    with pytest.raises(CasConflict):
        founding.compare_and_set(1, record())
    assert founding.read() is None
    assert founding.compare_and_set(0, record()) == store.read()
    with pytest.raises(CasConflict):
        SqliteCoordination(tmp_path / "none", "c", create=True).compare_and_set(1, record())
    assert [path.name for path in tmp_path.iterdir()] == ["r?%41 b"]


@pytest.mark.parametrize("with_another", [False, True])
def test_a_file_that_is_removed_or_replaced_while_it_is_open_is_not_served(tmp_path: Path, with_another: bool) -> None:
    """SQLite would go on with the file that has no name any more, and two primaries would each have a record."""
    store = SqliteCoordination(tmp_path / "r", "c", create=True)
    store.compare_and_set(0, record())
    (tmp_path / "r").rename(tmp_path / "old")
    if with_another:
        SqliteCoordination(tmp_path / "r", "c", create=True).compare_and_set(0, record(7))
    with pytest.raises(CoordinationError, match="removed or replaced"):
        store.compare_and_set(1, record())
    found = store.read()
    assert found is None if not with_another else found is not None and found.generation == 7


def test_one_of_many_processes_wins_each_version(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path\n"
        "from tests.broker_plugin.coordination.test_sqlite_coordination import *\n"
        "store, won, unknown = SqliteCoordination(Path(sys.argv[1]), 'c'), 0, 0\n"
        "while True:\n"
        "    try:\n"
        "        now = store.read().version\n"
        "        if now >= 150: break\n"
        "        store.compare_and_set(now, record()); won += 1\n"
        "    except CasConflict: pass\n"
        "    except CoordinationError: unknown += 1\n"
        "print(won, unknown)\n"
    )
    SqliteCoordination(tmp_path / "r", "c", create=True).compare_and_set(0, record())
    command = [sys.executable, "-c", code, str(tmp_path / "r")]
    running = [subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    counts = [[int(word) for word in process.communicate(timeout=60)[0].split()] for process in running]
    won, unknown = (sum(column) for column in zip(*counts, strict=True))
    found = SqliteCoordination(tmp_path / "r", "c").read()
    assert found is not None and won + 1 <= found.version <= won + 1 + unknown


def test_another_cluster_s_file_is_refused(tmp_path: Path) -> None:
    SqliteCoordination(tmp_path / "r", "c", create=True).compare_and_set(0, record())
    with pytest.raises(CoordinationError, match="belongs to cluster c, not to cluster d"):
        SqliteCoordination(tmp_path / "r", "d").read()


def test_an_unknown_format_and_a_damaged_file_are_refused(tmp_path: Path) -> None:
    SqliteCoordination(tmp_path / "r", "c", create=True).compare_and_set(0, record())
    with sqlite3.connect(tmp_path / "r") as connection:
        connection.execute("PRAGMA user_version=7")
    with pytest.raises(CoordinationError, match="format version 7"):
        SqliteCoordination(tmp_path / "r", "c").read()
    (tmp_path / "d").write_bytes(b"this is no database" * 100)
    with pytest.raises(CoordinationError, match=r"is damaged \(file is not a database\): .* with `txha recover`"):
        SqliteCoordination(tmp_path / "d", "c").read()


def of_format_2(path: Path, of_it: Record) -> None:
    """As earlier versions made it."""
    body = msgspec.json.encode(replace(of_it, version=1))
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE record (id INTEGER PRIMARY KEY, version INTEGER, crc INTEGER, body BLOB)")
        connection.execute("INSERT INTO record VALUES (1, 1, ?, ?)", (zlib.crc32(repr((1, body)).encode()), body))
        connection.execute("PRAGMA user_version=2")
    connection.close()


def format_of(path: Path) -> int:
    connection = sqlite3.connect(path)
    found = int(connection.execute("PRAGMA user_version").fetchone()[0])
    connection.close()
    return found


def test_an_old_process_stops_once_the_record_has_an_identity(tmp_path: Path) -> None:
    """``rolling_upgrade_splits_identity``: one that has the file open must look at its format again."""
    path, reads = tmp_path / "r", "SELECT version, crc, body FROM record WHERE id = 1"
    of_format_2(path, record(1, A))
    old = sqlite3.connect(path, isolation_level=None)
    assert old.execute(reads).fetchone()[0] == 1
    store, other = SqliteCoordination(path, "c", confirm=True), SqliteCoordination(path, "c", confirm=True)
    there = store.compare_and_set(1, record(1, A, B))
    assert format_of(path) == 2 and other.read() == there and old.execute(reads).fetchone()[0] == 2
    given = store.compare_and_set(2, replace(there, cluster_id="1" * 32))
    assert format_of(path) == 3 and given.version == 3
    with pytest.raises(sqlite3.OperationalError, match="crc"):
        old.execute(reads)
    with pytest.raises(sqlite3.OperationalError, match="crc"):
        old.execute("UPDATE record SET version = ?, crc = ?, body = ? WHERE id = 1", (4, 0, b""))
    old.close()
    assert other.read() == given, "it was open, and is of this version"
    assert other.compare_and_set(3, given).version == 4
    store.close()
    assert SqliteCoordination(path, "c", confirm=True).read() == replace(given, version=4) and format_of(path) == 3


def test_an_old_process_stops_once_the_record_says_who_is_a_member(tmp_path: Path) -> None:
    """``record_rewritten_without_members``: one that has the file open must look at its format again."""
    path, reads = tmp_path / "r", "SELECT * FROM record WHERE id = 1"
    store, other = SqliteCoordination(path, "c", create=True), SqliteCoordination(path, "c", confirm=True)
    there = store.compare_and_set(0, replace(record(), cluster_id="1" * 32))
    old = sqlite3.connect(path, isolation_level=None)
    assert old.execute(reads).fetchone()[1] == 1 and other.read() == there
    said = store.compare_and_set(1, replace(there, membership=Membership(1, (ClusterNode("a", "h", 1),))))
    assert format_of(path) == 4 and other.read() == said
    with pytest.raises(sqlite3.OperationalError, match="no such table"):
        old.execute(reads)
    with pytest.raises(sqlite3.OperationalError, match="no such table"):
        old.execute("REPLACE INTO record VALUES (1, 3, 0, '')")
    old.close()
    assert other.compare_and_set(2, said).version == 3
    assert SqliteCoordination(path, "c").snapshot().record == replace(said, version=3)


def test_a_new_record_is_of_the_new_format(tmp_path: Path) -> None:
    SqliteCoordination(tmp_path / "r", "c", create=True).compare_and_set(0, replace(record(), cluster_id="1" * 32))
    assert format_of(tmp_path / "r") == 3


def test_a_flipped_bit_is_found_and_never_served(tmp_path: Path) -> None:
    """At each byte that the file uses, one of its bits: the same record or an error; never another, never none."""
    path = tmp_path / "r"
    store = SqliteCoordination(path, "c", create=True)
    store.compare_and_set(0, record(1, A, B))
    whole = store.compare_and_set(1, record(1, A))
    store.close()
    image, found = path.read_bytes(), 0
    for at in (n for n, byte in enumerate(image) if byte):
        path.write_bytes(image[:at] + bytes([image[at] ^ (1 << at % 8)]) + image[at + 1 :])
        damaged = SqliteCoordination(path, "c")
        try:
            assert damaged.read() == whole, at
        except CoordinationError:
            found += 1
        finally:
            damaged.close()
    assert found > 100


def test_a_file_that_lost_its_record_is_damaged_and_not_new(tmp_path: Path) -> None:
    SqliteCoordination(tmp_path / "r", "c", create=True).compare_and_set(0, record())
    with sqlite3.connect(tmp_path / "r") as connection:
        connection.execute("DELETE FROM record")
    with pytest.raises(CoordinationError, match="stop all nodes and write a new one with `txha recover`"):
        SqliteCoordination(tmp_path / "r", "c").read()


def test_a_locked_store_fails_and_does_not_hang(tmp_path: Path) -> None:
    store = SqliteCoordination(tmp_path / "r", "c", create=True)
    store.compare_and_set(0, record())
    blocker = sqlite3.connect(tmp_path / "r", isolation_level=None)
    blocker.execute("BEGIN EXCLUSIVE")
    with pytest.raises(CoordinationError, match="locked"):
        store.compare_and_set(1, record())
    blocker.execute("ROLLBACK")
    assert store.compare_and_set(1, record()).version == 2


def test_who_makes_a_file_that_has_been_made_meanwhile_goes_on_with_it(tmp_path: Path) -> None:
    """Of two founders the later one gets the other's record."""
    first = SqliteCoordination(tmp_path / "r", "c", create=True).compare_and_set(0, record())
    later = SqliteCoordination(tmp_path / "r", "c", create=True)
    later._found()
    assert later.read() == first
    with pytest.raises(CasConflict) as conflict:
        later.compare_and_set(0, record(2))
    assert conflict.value.current == first


def test_a_change_waits_for_another_before_it_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """SQLite does not wait for the lock of a writer on behalf of one who has begun by reading: it fails at once."""
    monkeypatch.setattr(sqlite_coordination, "BUSY_SECONDS", 60.0)
    store = SqliteCoordination(tmp_path / "r", "c", create=True)
    store.compare_and_set(0, record())
    writer = sqlite3.connect(tmp_path / "r", isolation_level=None, check_same_thread=False)
    writer.execute("BEGIN IMMEDIATE")
    ending = threading.Timer(0.3, lambda: writer.execute("ROLLBACK"))
    ending.start()
    assert store.compare_and_set(1, record()).version == 2
    ending.join()


def test_a_file_that_is_replaced_while_a_change_is_made_has_not_taken_it(tmp_path: Path) -> None:
    """What was stored went into a file that no other node reads: the outcome is unknown."""
    store = SqliteCoordination(tmp_path / "r", "c", create=True)
    store.compare_and_set(0, record())
    assert store._connection is not None

    def replace(statement: str) -> None:
        if statement == "COMMIT":
            (tmp_path / "r").rename(tmp_path / "old")

    store._connection.set_trace_callback(replace)
    with pytest.raises(CoordinationError, match="removed or replaced"):
        store.compare_and_set(1, record())
    assert store.read() is None


def steps_of(tmp_path: Path, code: str) -> list[str]:
    """What a process does to the coordination file, by its system calls; ``code`` has the file's path as argument."""
    trace = tmp_path / "trace"
    code = f"import sys, os; from pathlib import Path\nfrom {__name__} import *\n{code}"
    command = ["strace", "-f", "-y", "-o", str(trace), "-e", "trace=pwrite64,write,fdatasync,fsync,unlink"]
    subprocess.run([*command, sys.executable, "-c", code, str(tmp_path / "r")], check=True, cwd=ROOT)
    steps = []
    for line in trace.read_text().splitlines():
        if "pwrite64" in line and "/r>" in line:
            steps.append("written")
        elif "sync(" in line and "/r>" in line:
            steps.append("synced")
        elif "unlink(" in line:
            steps.append("journal gone")
        elif "sync(" in line and "journal" not in line:
            steps.append("directory synced")
        elif "REPORTED" in line:
            steps.append("reported")
    return steps


DURABLY = ["written", "synced", "journal gone", "directory synced", "reported"]


def test_store_forgets_removal(tmp_path: Path) -> None:
    """A removal that was reported is on disk: between the write of the record and the report stands a sync of it."""
    steps = steps_of(
        tmp_path,
        "store = SqliteCoordination(Path(sys.argv[1]), 'c', create=True)\n"
        "store.compare_and_set(0, record(1, A, B)); os.write(1, b'REPORTED'); store.compare_and_set(1, record(1, A))\n"
        "os.write(1, b'REPORTED')\n",
    )
    last = steps[steps.index("reported") + 1 :]
    last = last[last.index("written") :]
    order = [last.index(step) for step in DURABLY]
    assert order == sorted(order), last


def test_what_a_node_finds_is_on_the_disk_before_it_is_told(tmp_path: Path) -> None:
    """Its writer may have been killed before its last sync, or never have seen it succeed. Others only look."""
    store = SqliteCoordination(tmp_path / "r", "c", create=True)
    kept = store.compare_and_set(0, record(1, A, B))
    store.close()
    read = "store = SqliteCoordination(Path(sys.argv[1]), 'c'{}); store.read(); os.write(1, b'REPORTED'); store.read()"
    steps = steps_of(tmp_path, read.format(", confirm=True"))
    assert steps[steps.index("written") :] == DURABLY, "and once only"
    assert steps_of(tmp_path, read.format("")) == ["reported"]
    assert store.read() == kept


def test_the_process_that_a_node_asks_confirms_what_it_finds(tmp_path: Path) -> None:
    SqliteCoordination(tmp_path / "r", "c", create=True).compare_and_set(0, record(1, A, B))
    steps = steps_of(
        tmp_path,
        "from broker_plugin.coordination.coordination_process import CoordinationProcess\n"
        "store = CoordinationProcess(Path(sys.argv[1]), 'c'); store.read(); os.write(1, b'REPORTED'); store.close()\n",
    )
    assert steps[steps.index("written") :] == DURABLY


@pytest.mark.parametrize("when", ["before", "behind"])
def test_a_file_that_is_replaced_while_it_is_opened_is_not_gone_by(
    when: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others read the one that has the name now."""
    for name, generation in (("r", 1), ("other", 2)):
        founding = SqliteCoordination(tmp_path / name, "c", create=True)
        founding.compare_and_set(0, record(generation))
        founding.close()
    store = SqliteCoordination(tmp_path / "r", "c")
    connect = store._connect

    def replaced(mode: str) -> sqlite3.Connection:
        if when == "before":
            (tmp_path / "other").rename(tmp_path / "r")
        connection = connect(mode)
        connection.execute("SELECT * FROM record").fetchone()
        if when == "behind":
            (tmp_path / "other").rename(tmp_path / "r")
        return connection

    monkeypatch.setattr(store, "_connect", replaced)
    with pytest.raises(CoordinationError, match="replaced"):
        store.read()
    monkeypatch.undo()
    found = store.read()
    assert found is not None and found.generation == 2
    store.close()


@pytest.mark.parametrize(
    ("error", "damaged"),
    [(UnicodeDecodeError("utf-8", b"\xff", 0, 1, "no text"), True), (sqlite3.OperationalError("I/O error"), False)],
)
def test_what_is_no_text_is_damage(error: Exception, damaged: bool, tmp_path: Path) -> None:
    """SQLite hands the bytes of a page on as they are; that a disk fails says nothing about them."""
    assert ("is damaged" in str(SqliteCoordination(tmp_path / "r", "c")._failed(error))) == damaged
