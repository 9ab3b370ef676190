"""What is really synced (P11), by the system calls themselves: log, queue state, identity, and the names of all."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from recovery.store.lmdb_state import LmdbState

ROOT = Path(__file__).parents[3]
CALLS = "openat,mkdir,rename,unlink,write,writev,pwrite64,pwritev,fdatasync,fsync,msync,ftruncate"
BEGIN = """
import os, sys
from pathlib import Path
from tests.support.logs import Posts, frame, open_store
from tests.recovery.store.test_store import meta_at
posts = Posts()
def say(word):
    os.write(1, (word + "\\n").encode())
def done(*calls):
    for call in calls:
        call()
        assert posts.wait() == [None]
where = Path(sys.argv[1])
"""
OPEN = 'store = open_store(where, posts, segment_bytes=400); suffix = list(store.suffix()); say("OPENED")\n'


def steps_of(where: Path, code: str) -> list[str]:
    """The system calls of a process that succeeded, on what is in ``where``: ``call path``, in order of their ends.

    A path is relative to the store. A descriptor that writes through is ``call! path``.
    """
    trace = where.parent / "trace"
    command = ["strace", "-f", "-y", "-o", str(trace), "-e", f"trace={CALLS}"]
    run = [*command, sys.executable, "-c", BEGIN + code, str(where)]
    subprocess.run(run, check=True, cwd=ROOT, capture_output=True)
    ours = re.compile(rf'["<]{re.escape(str(where.parent))}(?:/([^">]*))?[">]')
    steps, through, begun = [], set(), dict[str, str]()
    for line in trace.read_text().splitlines():
        thread, _, call = line.partition(" ")
        if call.endswith("<unfinished ...>"):
            begun[thread] = call.removesuffix("<unfinished ...>")
            continue
        if resumed := re.search(r"<\.\.\. \w+ resumed>(.*)", call):
            call = begun.pop(thread) + resumed[1]
        name, _, rest = call.strip().partition("(")
        if said := re.search(r'^1<.*"([A-Z]+)', rest) if name == "write" else None:
            steps.append(said[1])
        elif " = -1 " not in rest and (path := ours.search(rest)):
            number = rest.split("<")[0]
            if name == "openat":
                if "O_DSYNC" in rest or "O_SYNC" in rest:
                    through.add(rest.rsplit("= ", 1)[1].split("<")[0])
                if "O_CREAT" not in rest:
                    continue
                name = "create"
            relative = str(Path(path[1] or ".")).removeprefix(where.name + "/")
            steps.append(f"{name}{'!' if number in through and name.startswith('p') else ''} {relative}")
    return steps


def before(steps: list[str], *ordered: str) -> list[str]:
    """That these come in this order, each behind the one before; returns what is behind the last."""
    for each in ordered:
        assert each in steps, f"{each} is missing in {steps}"
        steps = steps[steps.index(each) + 1 :]
    return steps


def test_a_new_store_is_on_the_disk_with_all_its_names(tmp_path: Path) -> None:
    """Before anything rests on it: the directory in its parent, state and log in it, and the identity."""
    steps = steps_of(tmp_path / "n", OPEN)
    opened = steps[: steps.index("OPENED")]
    assert before(opened, "mkdir n", "fsync .", "create state/data.mdb", "fsync state", "fsync identity.json.new")
    assert before(opened, "fsync identity.json.new", "rename identity.json.new", "fsync n")
    assert before(opened, "mkdir log", "fsync n")
    assert before(opened, "create log/00000000000000000001.log", "fdatasync log/00000000000000000001.log", "fsync log")


def test_what_a_start_finds_is_on_the_disk_before_it_counts(tmp_path: Path) -> None:
    """Names, the last checkpoint's head page, the log's end: each is written again, and synced."""
    steps_of(tmp_path / "n", OPEN + "done(lambda: store.append(frame(1), posts.done)); store.close()")
    steps = steps_of(tmp_path / "n", OPEN)
    opened = steps[: steps.index("OPENED")]
    for names in ("n", "state", "log"):
        scratch = ".renewed" if names == "n" else f"{names}/.renewed"
        before(opened, f"create {scratch}", f"unlink {scratch}", f"fsync {names}")
    before(opened, "fsync .")
    before(opened, "pwrite64 state/data.mdb", "fdatasync state/data.mdb", "pwrite64! state/data.mdb")
    segment = "log/00000000000000000001.log"
    before(opened, f"ftruncate {segment}", f"pwrite64 {segment}", f"fdatasync {segment}")


def test_a_new_segment_is_on_the_disk_before_an_event_is_in_it(tmp_path: Path) -> None:
    code = 'for n in range(1, 12, 3): done(lambda: store.append(frame(n), posts.done)); say("REPORTED")\n'
    steps = steps_of(tmp_path / "n", OPEN + code)
    steps = steps[steps.index("OPENED") :]
    made = [at for at, step in enumerate(steps) if step.startswith("create log/")]
    assert made
    for at in made:
        segment = steps[at].removeprefix("create ")
        synced = [f"writev {segment}", f"fdatasync {segment}"]
        assert steps[at + 1 : at + 7] == [*synced, "fsync log", *synced, "REPORTED"]


def test_a_cut_and_a_reset_are_on_the_disk_before_they_are_reported(tmp_path: Path) -> None:
    code = (
        "from txobserver.ids import Position\n"
        "for n in range(1, 20, 3): done(lambda: store.append(frame(n), posts.done))\n"
        'say("CUTTING"); done(lambda: store.truncate(12, Position(1, 12), posts.done)); say("CUT")\n'
        'done(lambda: store.truncate(4, Position(1, 4), posts.done)); say("WITHIN")\n'
        'done(lambda: store.reset(Position(1, 70), posts.done)); say("RESET")\n'
    )
    steps = steps_of(tmp_path / "n", OPEN + code)
    cut = steps[steps.index("CUTTING") : steps.index("CUT")]
    before(cut, next(step for step in cut if step.startswith("unlink log/")), "fsync log")
    ends = next(step for step in cut if step.startswith("ftruncate log/")).removeprefix("ftruncate ")
    before(cut, f"ftruncate {ends}", f"fdatasync {ends}")
    within = steps[steps.index("CUT") : steps.index("WITHIN")]
    left = next(step for step in within if step.startswith("unlink log/"))
    before(within, left, "fsync log", "create log/.cut", "writev log/.cut", "writev log/.cut", "fdatasync log/.cut")
    before(within, "fdatasync log/.cut", "rename log/.cut", "fsync log")
    reset = steps[steps.index("WITHIN") : steps.index("RESET")]
    segment = "log/00000000000000000071.log"
    left = next(step for step in reset if step.startswith("unlink log/"))
    before(reset, left, f"create {segment}", f"writev {segment}", f"fdatasync {segment}", "fsync log")


def test_a_checkpoint_is_on_the_disk_before_it_is_reported(tmp_path: Path) -> None:
    """Its pages are written, then synced, then its head page is written through; neither may be left out."""
    code = 'done(lambda: store.checkpoint(meta_at(6), posts.done)); say("REPORTED")\n'
    steps = steps_of(tmp_path / "n", OPEN + code)
    written = steps[steps.index("OPENED") + 1 : steps.index("REPORTED")]
    assert written[-2:] == ["fdatasync state/data.mdb", "pwrite64! state/data.mdb"]
    assert written[:-2] and set(written[:-2]) <= {
        "writev state/data.mdb",
        "pwrite64 state/data.mdb",
        "pwritev state/data.mdb",
    }


CONDEMN = """
from recovery.store.condemned import condemn
say("FOUND")
condemn(where / "state", "a checksum does not match")
say("CONDEMNED")
"""


def test_the_mark_of_damage_is_on_the_disk_before_the_node_ends(tmp_path: Path) -> None:
    """Else a power cut lets it serve the damaged state again."""
    steps = steps_of(tmp_path / "n", OPEN + CONDEMN)
    marked = steps[steps.index("FOUND") : steps.index("CONDEMNED")]
    before(marked, "create state/damaged", "write state/damaged", "fsync state/damaged", "fsync state")


ARCHIVE = """
from recovery.pipeline.archive.lake import Lake, Manifest
lake = Lake(where)
with lake.writing():
    say("OPENED")
    lake.commit(lake.current())
    say("REPORTED")
"""


def test_a_manifest_of_the_archive_is_on_the_disk_before_it_is_reported_or_built_upon(tmp_path: Path) -> None:
    """The next writer makes the name of the last one durable: the one that gave it may never have seen its sync."""
    steps = steps_of(tmp_path / "n", ARCHIVE)
    new = "manifest/00000000000000000001.new"
    before(steps, "mkdir n", "fsync .", "OPENED", "mkdir manifest", "fsync n", f"fsync {new}", "fsync manifest")
    assert steps[-2:] == ["fsync manifest", "REPORTED"]
    opened = steps_of(tmp_path / "n", ARCHIVE)
    scratch = "manifest/.renewed"
    before(opened[: opened.index("OPENED")], f"create {scratch}", f"unlink {scratch}", "fsync manifest")


@pytest.mark.parametrize("read_only", [False, True])
def test_no_option_of_lmdb_gives_durability_away(tmp_path: Path, read_only: bool) -> None:
    LmdbState(tmp_path).close()
    state = LmdbState(tmp_path, read_only)
    flags = state._env.flags()
    state.close()
    assert flags["sync"] and flags["metasync"]
    assert not flags["writemap"] and not flags["map_async"]
