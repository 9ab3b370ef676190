"""Judges a sample of mutants on several scratch copies at once; each verdict is kept in a file at once."""

from __future__ import annotations

import json
import queue
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tests.mutants.copy import scratch_copy, stop_all
from tests.mutants.evidence import Evidence
from tests.mutants.instrument import Numbering
from tests.mutants.mutation import Mutation
from tests.mutants.trial import Verdict, trial

ENOUGH = 0.95


@dataclass
class Results:
    """Verdicts by the mutations' keys, and the file that remembers them: one line of JSON for each."""

    file: Path | None = None
    verdicts: dict[str, Verdict] = field(default_factory=dict)

    def read(self) -> None:
        """What an earlier run has found. A line that was cut short does not count."""
        if self.file is None or not self.file.exists():
            return
        for line in self.file.read_text().split("\n")[:-1]:
            words = json.loads(line)
            self.verdicts[words.pop("key")] = Verdict(**{name: words[name] for name in Verdict.__dataclass_fields__})

    def add(self, mutation: Mutation, verdict: Verdict) -> None:
        """One more, on the disk when this returns."""
        self.verdicts[mutation.key] = verdict
        if self.file is not None:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            where = f"{mutation.path}:{mutation.line} {mutation.operator}"
            with self.file.open("a") as file:
                file.write(json.dumps({"key": mutation.key, "where": where, **asdict(verdict)}) + "\n")


def run(
    root: Path,
    sample: list[Mutation],
    found: Evidence,
    numbers: Numbering,
    results: Results,
    jobs: int,
    done: Callable[[Mutation, Verdict], None],
) -> None:
    """Judge those of the sample that have no verdict yet. ``done`` is called after each, by one thread at a time."""
    left: queue.SimpleQueue[Mutation] = queue.SimpleQueue()
    for mutation in sample:
        if mutation.key not in results.verdicts:
            left.put(mutation)
    lock = threading.Lock()
    errors: list[BaseException] = []

    def work(copy: Path) -> None:
        try:
            for mutation in _taken(left):
                verdict = trial(copy, mutation, found.steps(mutation, numbers), found.seconds)
                with lock:
                    results.add(mutation, verdict)
                    done(mutation, verdict)
        except BaseException as error:
            errors.append(error)

    with ExitStack() as stack:
        copies = [stack.enter_context(scratch_copy(root)) for _ in range(jobs)]
        threads = [threading.Thread(target=work, args=(copy,), daemon=True) for copy in copies]
        for thread in threads:
            thread.start()
        try:
            for thread in threads:
                thread.join()
        except BaseException:
            stop_all()
            for thread in threads:
                thread.join()
            raise
    if errors:
        raise errors[0]


def _taken(left: queue.SimpleQueue[Mutation]) -> Iterator[Mutation]:
    while True:
        try:
            yield left.get_nowait()
        except queue.Empty:
            return


def share(sample: list[Mutation], results: Results) -> float:
    """How many of the sample died, as a fraction."""
    return sum(results.verdicts[each.key].dead for each in sample) / len(sample) if sample else 1.0
