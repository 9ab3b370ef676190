"""``txha archive`` as its users run it: killed at each step, and run again."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from recovery.pipeline.archive.lake import Lake
from recovery.pipeline.archive.reading import archive_rows
from recovery.pipeline.rows.events import events_of
from recovery.store.crash_points import CRASH_POINTS
from tests.recovery.pipeline.events import STORY, apply_up_to, write_node
from txobserver.ids import Position

END = sum(map(len, STORY))
SIGKILLED = -9


def archive(*arguments: str, crash_point: str | None = None) -> subprocess.CompletedProcess[str]:
    """Run the command to its end, whatever that is."""
    environment = {name: value for name, value in os.environ.items() if name != "TXHA_CRASH_POINT"}
    if crash_point is not None:
        environment["TXHA_CRASH_POINT"] = crash_point
    command = [sys.executable, "-m", "broker_plugin.cli.main", "archive", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


@pytest.mark.standalone
@pytest.mark.timeout(600)
@pytest.mark.parametrize("point", [point for point in CRASH_POINTS if point.startswith("archive.")])
def test_sigkill_at_each_step(tmp_path: Path, point: str) -> None:
    """The last run finds everything as an undisturbed one would leave it."""
    node, lake = tmp_path / "nodes" / "n1", Lake(tmp_path / "archive")
    write_node(node, STORY, segment_bytes=380)
    apply_up_to(node, END)
    command = [str(tmp_path / "nodes"), "--to", str(lake.directory), "--max-events", "9", "--grace", "0"]
    killed = archive(*command, crash_point=point)
    assert killed.returncode == SIGKILLED and f"crash point {point}" in killed.stderr
    for _ in range(2):
        done = archive(*command)
        assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.endswith(f"1 files, up to n1 1.{END}\n")
    manifest = lake.current()
    assert manifest.ends == {"n1": Position(1, END)} and not manifest.removed
    assert [each.event for each in events_of(archive_rows(lake.directory, "n1"))] == [e for f in STORY for e in f]
    assert set(lake.files()) == {lake.directory / entry.path for entry in manifest.files}


def test_a_command_without_anything_to_read_is_refused(tmp_path: Path) -> None:
    done = archive("--to", str(tmp_path / "archive"))
    assert (done.returncode, done.stderr) == (2, "txha: name directories to archive, or running nodes with --nodes\n")
    assert not (tmp_path / "archive").exists()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--every", "5"], "--every is for --follow: without it there is one batch"),
        (["--to", "{file}"], "{file} is no directory: an archive needs one of its own"),
        (["--to", "{node}"], "{node} holds something else than an archive (identity.json): name a directory that is"),
    ],
)
def test_a_place_or_an_option_that_cannot_be(tmp_path: Path, options: list[str], said: str) -> None:
    """It wrote into a node's directory, if that did not run."""
    file, node = tmp_path / "file", tmp_path / "node"
    file.touch()
    node.mkdir()
    (node / "identity.json").touch()
    given = [each.format(file=file, node=node) for each in options]
    done = archive("/nowhere", *([] if "--to" in given else ["--to", str(tmp_path / "archive")]), *given)
    assert done.returncode == 2
    assert done.stderr.startswith("txha: " + said.format(file=file, node=node))
    assert list(node.iterdir()) == [node / "identity.json"]


def test_a_node_that_no_directory_can_have(tmp_path: Path) -> None:
    long = tmp_path / ("n" * 300)
    done = archive(str(long), "--to", str(tmp_path / "archive"))
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert done.stderr.endswith(f"txha: {long}/manifest cannot be used: File name too long\n")  # behind what Spark says
