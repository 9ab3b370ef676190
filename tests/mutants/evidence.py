"""What the tests run, collected once for each state of the project: which may find a mutation, and in which order."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tests.mutants.copy import end, scratch_copy, start
from tests.mutants.instrument import Numbering, instrument, numbering
from tests.mutants.judge import SEED, Job, write_job
from tests.mutants.mutation import Mutation
from tests.mutants.scope import COPIED, JUDGES, ROOT, mutated_files

QUICK = 0.5
"""Seconds: tests up to this long come before the seeds, longer ones behind them."""


@dataclass
class Evidence:
    """``seconds`` of each test and seed; ``runs``: the blocks that each has run; ``always``: those that imports run."""

    seconds: dict[str, float] = field(default_factory=dict)
    runs: dict[str, set[int]] = field(default_factory=dict)
    always: set[int] = field(default_factory=set)
    failing: list[str] = field(default_factory=list)

    def steps(self, mutation: Mutation, numbers: Numbering) -> list[str]:
        """What can find this mutation: short tests of its own folder first, then others, seeds, long tests."""
        names = [name for name in self.runs if self._may_find(name, mutation, numbers)]
        return sorted(names, key=lambda name: (self._class(name, mutation.path), self.seconds[name], name))

    def _may_find(self, name: str, mutation: Mutation, numbers: Numbering) -> bool:
        """A test that does not run a mutated block passes as before. What imports run may have any effect."""
        block = None if mutation.block is None else numbers.number(mutation.path, mutation.block)
        if block is not None and block not in self.always:
            return block in self.runs[name]
        whole = numbers.of_file(mutation.path)
        return not whole or not self.runs[name].isdisjoint(whole) or name.startswith(own_folder(mutation.path))

    def _class(self, name: str, path: str) -> int:
        if name.startswith(SEED):
            return 2
        own = name.startswith(own_folder(path))
        return (0 if own else 1) if self.seconds[name] <= QUICK else 3


def own_folder(path: str) -> str:
    """The tests' folder that mirrors a module's."""
    package, _, rest = path.partition("/")
    return f"tests/{rest.partition('/')[0]}/" if package == "broker_plugin" else f"tests/{package}/"


def fingerprint(root: Path = ROOT) -> str:
    """Changes with every file that a scratch copy has, and with Python."""
    digest = hashlib.sha256(sys.version.encode())
    for path in sorted(_files(root)):
        digest.update(str(path.relative_to(root)).encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


def _files(root: Path) -> Iterable[Path]:
    for each in COPIED:
        if each != "docs":
            yield from (root / each).rglob("*.py") if (root / each).is_dir() else (root.glob(each))


def evidence(root: Path, cache: Path, say: Callable[[str], None]) -> Evidence:
    """Collected in two processes, or read from the file that an earlier call wrote. RuntimeError if nothing passes."""
    file = cache / f"evidence-{fingerprint(root)}.json"
    if file.exists():
        return _read(file)
    say("collecting which tests run which blocks (once for each state of the project; a minute or two)")
    with scratch_copy(root) as copy:
        instrument(copy, numbering(root, mutated_files(root)))
        halves = [["seeds"], *([folder] for folder in JUDGES if (root / folder).exists())]
        with ThreadPoolExecutor(2) as pool:
            lines = [line for found in pool.map(lambda half: _collect(copy, half), halves) for line in found]
    found = _made_of(lines)
    _look_again(root, found)
    if not any(name.startswith(SEED) for name in found.runs):
        raise RuntimeError(
            "the tests do not pass without a mutation: " + ", ".join(found.failing[:5] or ["no seed ran"])
        )
    cache.mkdir(parents=True, exist_ok=True)
    kept = asdict(found) | {
        "always": sorted(found.always),
        "runs": {name: sorted(on) for name, on in found.runs.items()},
    }
    file.write_text(json.dumps(kept))
    return found


def _look_again(root: Path, found: Evidence) -> None:
    """Tests that failed with instruments may pass without: those that measure time. The others judge nothing."""
    failed, found.failing = found.failing, []
    with scratch_copy(root) as copy:
        for name in dict.fromkeys(failed):
            job, report = copy.parent / "job.json", copy.parent / "report.jsonl"
            write_job(Job([name]), job)
            process = start(copy, "tests.mutants.judge", str(job), str(report))
            process.wait()
            end(process)
            if json.loads(report.read_text().splitlines()[-1]).get("killer", name):
                found.failing.append(name)
                found.runs.pop(name, None)


def _collect(copy: Path, what: list[str]) -> list[str]:
    name = "-".join(what).replace("/", "-")
    report = copy.parent / f"{name}.jsonl"
    process = start(copy, "tests.mutants.collect", str(report), *what, hits=copy.parent / f"{name}.hits")
    process.wait()
    end(process)
    return report.read_text().splitlines() if report.exists() else []


def _made_of(lines: list[str]) -> Evidence:
    found = Evidence()
    for line in map(json.loads, lines):
        if "fails" in line:
            found.failing.append(line["fails"])
        elif not line["name"]:
            found.always |= set(line["blocks"])
        else:
            found.seconds[line["name"]] = line["seconds"]
            found.runs[line["name"]] = set(line["blocks"])
    return found


def _read(file: Path) -> Evidence:
    kept = json.loads(file.read_text())
    runs = {name: set(blocks) for name, blocks in kept["runs"].items()}
    return Evidence(kept["seconds"], runs, set(kept["always"]), kept["failing"])
