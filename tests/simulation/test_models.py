"""The models that the simulator runs on behave as the real parts do: files, queue state, coordination record.

Each test does the same, drawn by seed, to a model and to the real part, and compares all that can be read. Processes
are killed at each point of a checkpoint and of a change of the record: what the next one finds is what the model holds.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from broker_plugin.coordination.coordination_process import CoordinationProcess
from broker_plugin.coordination.sqlite_coordination import SqliteCoordination
from ha.membership.record import CasConflict, Coordination, MemoryCoordination, Record
from recovery.store.files import Files, renew_directory
from recovery.store.lmdb_state import LmdbState, check
from tests.simulation.fake_files import FakeFiles
from tests.support.logs import message
from txobserver.events import TxEnqueue, TxEvent, TxOpen
from txobserver.ids import Member, Position
from txobserver.outcomes import Kind, Outcomes, OutcomesMeta, Remembered
from txobserver.ports.store import Above, At, Checkpoint, Dropped, Entry, MemoryBase, Meta, QueueSummary, TxRun
from txobserver.xid import Xid

ROOT = Path(__file__).parents[2]
NAMES = ("a", "b", "c")

# -- files


class Hands:
    """One set of files, and the descriptors that are open in it; the same numbers in both."""

    def __init__(self, files: Files, directory: Path) -> None:
        self.files = files
        self.directory = directory
        self._open: dict[int, int] = {}
        self._of: dict[int, str] = {}

    def do(self, what: str, name: str, number: int, data: bytes) -> object:
        """What it gives, or the kind of error that it raises."""
        try:
            return getattr(self, what)(name, number, data)
        except (OSError, KeyError) as error:
            assert isinstance(error, FileExistsError | FileNotFoundError | KeyError), error
            return FileNotFoundError if isinstance(error, KeyError) else type(error)

    def create(self, name: str, number: int, data: bytes) -> None:
        self._keep(number, name, self.files.create(self.directory / name))

    def open(self, name: str, number: int, data: bytes) -> None:
        self._keep(number, name, self.files.open(self.directory / name))

    def write(self, name: str, number: int, data: bytes) -> None:
        self.files.write(self._open[number], [data[:3], data[3:]])

    def truncate(self, name: str, number: int, data: bytes) -> None:
        size = self.files.size(self._open[number])
        self.files.truncate(self._open[number], size * len(data) // 12)

    def sync(self, name: str, number: int, data: bytes) -> None:
        self.files.sync(self._open[number])

    def close(self, name: str, number: int, data: bytes) -> None:
        self.files.close(self._open.pop(number))

    def remove(self, name: str, number: int, data: bytes) -> None:
        self.files.remove(self.directory / name)

    def rewrite(self, name: str, number: int, data: bytes) -> None:
        self.files.rewrite(self.directory / name, len(self._content(name)) // 2)

    def sync_directory(self, name: str, number: int, data: bytes) -> None:
        self.files.sync_directory(self.directory)

    def renew_directory(self, name: str, number: int, data: bytes) -> None:
        renew_directory(self.directory, self.files)

    def seen(self) -> tuple[dict[str, bytes], dict[int, int]]:
        """Everything that can be read."""
        sizes = {number: self.files.size(descriptor) for number, descriptor in self._open.items()}
        return {name: self._content(name) for name in sorted(self.files.names(self.directory))}, sizes

    def end(self) -> None:
        """The process ends, and another one begins; the machine goes on."""
        for descriptor in self._open.values():
            self.files.close(descriptor)
        self._open.clear()

    def _keep(self, number: int, name: str, descriptor: int) -> None:
        if number in self._open:
            self.files.close(self._open.pop(number))
        self._open[number] = descriptor

    def _content(self, name: str) -> bytes:
        with self.files.reader(self.directory / name) as file:
            file.seek(0)
            return file.read()


DOINGS = (
    *("create", "open", "write", "write", "write", "truncate", "sync", "close", "remove", "rewrite"),
    *("sync_directory", "renew_directory", "end"),
)


@pytest.mark.parametrize("seed", range(60))
def test_fake_files_are_read_as_real_ones(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    hands = Hands(Files(), tmp_path), Hands(FakeFiles(lambda: 0.0), Path("any"))
    for _ in range(120):
        what, name, number = chance.choice(DOINGS), chance.choice(NAMES), chance.randrange(3)
        data = chance.randbytes(chance.randrange(12))
        if what == "end":
            for each in hands:
                each.end()
        else:
            real, fake = (each.do(what, name, number, data) for each in hands)
            assert real == fake, what
        assert hands[0].seen() == hands[1].seen(), what
    hands[0].end()


# -- the queue state


def checkpoints(seed: int) -> Iterator[Checkpoint]:
    """One after the other, as the stream leads to them: queues, open transactions, outcomes, a snapshot at times."""
    chance = random.Random(seed)
    contents: dict[int, dict[int, Entry]] = {}
    open_ones: dict[int, int] = {}
    outcomes = Outcomes(OutcomesMeta(), ())
    sequence = 0
    while True:
        sequence += 100
        dropped = []
        for queue in [queue for queue in contents if chance.random() < 0.1]:
            content = contents.pop(queue)
            kept = {offset: content[offset] for offset in sorted(content) if chance.random() < 0.3}
            if kept and chance.random() < 0.5:
                contents[queue] = kept
            dropped.append(Dropped(queue, {offset: entry.rid for offset, entry in contents.get(queue, {}).items()}))
        changes: dict[int, dict[int, Entry | None]] = {}
        for queue in chance.sample(range(1, 6), chance.randint(0, 4)):
            changes[queue] = changed(chance, contents.setdefault(queue, {}), sequence)
        ended = [tx for tx in open_ones if chance.random() < 0.3]
        for tx in ended:
            del open_ones[tx]
        events = grown(chance, open_ones, sequence)
        if chance.random() < 0.1:
            outcomes.replace(OutcomesMeta(), ())
        for number in range(chance.randint(0, 3)):
            outcomes.remember(Remembered(Kind.BRANCH, 1, b"%d" % chance.randrange(9), b"", True, sequence + number, 1))
        if chance.random() < 0.3:
            outcomes.forget(Xid(1, b"%d" % chance.randrange(9), b""))
        meta = Meta(Position(1, sequence), [Position(1, 1)], resyncing=chance.random() < 0.1, outcomes=outcomes.meta)
        meta.summaries = {queue: summed(content) for queue, content in contents.items()}
        yield Checkpoint(meta, changes, dropped, events, ended, *outcomes.take_changes())


def changed(chance: random.Random, content: dict[int, Entry], sequence: int) -> dict[int, Entry | None]:
    changes: dict[int, Entry | None] = {}
    for offset in chance.sample(range(sequence, sequence + 90), chance.randint(0, 20)):
        size = chance.choice((0, 10, 3000)) if chance.random() < 0.2 else 10
        changes[offset] = content[offset] = Entry(offset + 7, message("x" * size))
    for offset in chance.sample(sorted(content), min(len(content), chance.randint(0, 15))):
        changes[offset] = None
        del content[offset]
    return changes


def grown(chance: random.Random, open_ones: dict[int, int], sequence: int) -> list[TxRun]:
    runs: list[TxRun] = []
    if chance.random() < 0.5:
        runs.append(TxRun(sequence, [(sequence, TxOpen(sequence))]))
        open_ones[sequence] = sequence
    count = len(runs)
    for tx in open_ones:
        run: list[tuple[int, TxEvent]] = []
        for number in range(chance.randint(0, 2)):
            count += 1
            run.append((sequence + count, TxEnqueue(tx, number, (1, 2), message("t"))))
        if run:
            runs.append(TxRun(tx, run))
    return runs


def summed(content: dict[int, Entry]) -> QueueSummary:
    summary = QueueSummary()
    for offset, entry in content.items():
        summary.put(offset, entry.rid)
    return summary


class Seen(NamedTuple):
    """All that can be read of a state; ``chosen``: some entries and pages."""

    meta: Meta
    transactions: object
    remembered: object
    ids: object
    chosen: object


def seen(state: LmdbState | MemoryBase, chance: random.Random) -> Seen:
    loaded = state.load()
    queues = range(7)
    ids = {queue: list(state.ids(queue)) for queue in queues}
    chosen: list[Any] = []
    for queue in queues:
        after, limit = chance.randint(-1, 2000), chance.randint(1, 30)
        chosen += [state.page(queue, -1, limit), state.page(queue, after, limit), state.ids_page(queue, after, limit)]
        offsets = (max(after, 0), *(offset for offset, _ in ids[queue][:3]))
        chosen += [each for offset in offsets for each in (state.get(queue, offset), state.holds(queue, offset))]
        chosen += [state.read(Above(queue, after, limit, 1 << 30)), state.read(At(queue, offsets, 1 << 30))]
        chosen += [state.read(Above(queue, -1, limit, 0)), state.read(At(queue, offsets, 0))]
    remembered = sorted(loaded.remembered, key=lambda each: each.key)
    return Seen(loaded.meta, loaded.transactions, remembered, ids, chosen)


@pytest.mark.parametrize("seed", range(12))
def test_the_model_of_the_queue_state_holds_what_lmdb_holds(tmp_path: Path, seed: int) -> None:
    """Behind every checkpoint, and when it is opened anew."""
    real, model = LmdbState(tmp_path), MemoryBase()
    for number, checkpoint in enumerate(islice(checkpoints(seed), 25)):
        for state in (real, model):
            state.write(checkpoint)
        if number % 5 == 4:
            real.close()
            check(tmp_path)
            real = LmdbState(tmp_path)
            assert real.log_begun == model.log_begun == (number > 4)
            for state in (real, model):
                state.confirm(True)
        assert seen(real, random.Random(number)) == seen(model, random.Random(number))
    real.close()


POINTS = {"checkpoint.before-write": 0, "checkpoint.before-commit": 0, "checkpoint.committed": 1}
"""How many of the checkpoints under way there are when the process is killed at that point"""
WRITER = """
import sys
from itertools import islice
from pathlib import Path
from recovery.store.lmdb_state import LmdbState
from tests.simulation.test_models import checkpoints
state = LmdbState(Path(sys.argv[1]))
for checkpoint in islice(checkpoints(int(sys.argv[2])), 20):
    state.write(checkpoint)
"""


def killed(point: str, code: str, *arguments: object) -> None:
    command = [sys.executable, "-c", code, *map(str, arguments)]
    environment = {**os.environ, "TXHA_CRASH_POINT": point}
    run = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == -signal.SIGKILL, run.stderr


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("number", [1, 2, 7, 20])
def test_a_killed_checkpoint_is_there_as_a_whole_or_not_at_all(tmp_path: Path, point: str, number: int) -> None:
    killed(f"{point}:{number}", WRITER, tmp_path / "state", number)
    model = MemoryBase()
    for checkpoint in islice(checkpoints(number), number - 1 + POINTS[point]):
        model.write(checkpoint)
    check(tmp_path / "state")
    real = LmdbState(tmp_path / "state")
    assert seen(real, random.Random(1)) == seen(model, random.Random(1))
    for checkpoint in islice(checkpoints(number), number - 1 + POINTS[point], number + 5):
        for state in (real, model):
            state.write(checkpoint)
    assert seen(real, random.Random(2)) == seen(model, random.Random(2))
    real.close()


# -- the coordination record


def drawn(chance: random.Random, generation: int = 0) -> Record:
    """Any record; of this generation, if one is given."""
    members = [Member(name, "1") for name in chance.sample(NAMES, chance.randint(1, 3))]
    primary = chance.choice([None, *members])
    released, preferred = chance.random() < 0.5, chance.choice(NAMES)
    return Record("c", 0, generation or chance.randint(1, 4), primary, tuple(members), released, preferred)


def answer(store: Coordination, expected: int | None, record: Record) -> object:
    """What a read, or with ``expected`` a compare-and-set, gives."""
    if expected is None:
        return store.read()
    try:
        return store.compare_and_set(expected, record)
    except CasConflict as conflict:
        return "conflict", conflict.current


@pytest.mark.parametrize("seed", range(15))
def test_the_model_of_the_coordination_store_answers_as_sqlite_does(tmp_path: Path, seed: int) -> None:
    """To several that ask, some of whom open the file anew at times."""
    chance = random.Random(seed)
    model = MemoryCoordination()
    makes: list[Callable[[], SqliteCoordination]] = [
        lambda: SqliteCoordination(tmp_path / "r", "c", create=True),
        lambda: SqliteCoordination(tmp_path / "r", "c", confirm=True),
        lambda: SqliteCoordination(tmp_path / "r", "c"),
    ]
    handles = [make() for make in makes]
    assert handles[1].read() is None is model.read()
    for store in (handles[0], model):
        store.compare_and_set(0, drawn(random.Random(seed)))
    for _ in range(40):
        who, record = chance.randrange(3), drawn(chance)
        assert model.record is not None
        expected = chance.choice([None, model.record.version, model.record.version + chance.randint(-2, 2)])
        assert answer(handles[who], expected, record) == answer(model, expected, record)
        if chance.random() < 0.1:
            handles[who].close()
            handles[who] = makes[who]()
    for handle in handles:
        handle.close()


CHANGES = {"cas.before": 0, "cas.committed": 1}
CHANGER = """
import random, sys
from pathlib import Path
from broker_plugin.coordination.coordination_process import CoordinationProcess
from tests.simulation.test_models import drawn
store, chance = CoordinationProcess(Path(sys.argv[1]), "c"), random.Random(int(sys.argv[2]))
for version in range(1, 20):
    store.compare_and_set(version, drawn(chance, 5 + version))
"""


@pytest.mark.parametrize("point", CHANGES)
@pytest.mark.parametrize("number", [1, 2, 9])
def test_a_killed_change_of_the_record_is_made_or_not(tmp_path: Path, point: str, number: int) -> None:
    model = MemoryCoordination()
    for store in (SqliteCoordination(tmp_path / "r", "c", create=True), model):
        store.compare_and_set(0, drawn(random.Random(0)))
    killed(f"{point}:{number}", CHANGER, tmp_path / "r", number)
    chance = random.Random(number)
    for version in range(1, number + CHANGES[point]):
        model.compare_and_set(version, drawn(chance, 5 + version))
    real = CoordinationProcess(tmp_path / "r", "c")
    try:
        found = real.read()
        assert found == model.read() and found is not None
        assert real.compare_and_set(found.version, drawn(chance, 99)).version == found.version + 1
    finally:
        real.close()
