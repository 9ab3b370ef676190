"""Hooks: an operator's executables, bounded in time and output, without a shell and without the node's secrets."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from broker_plugin.node.calls.actions import ActionContext, ActionFailed
from broker_plugin.node.calls.hooks import LOCK_FILE, OUTPUT_KEPT, Hooks
from python_tests.harness.waiting import wait_until
from txobserver.actions import RunHook

FIRST = ActionContext("ab" * 16, 0, False)


def hooks(directory: Path, script: str, seconds: float = 20.0) -> Hooks:
    """With one that is called h; ``script`` is of the shell, with ``$DIR`` for the test's directory."""
    path = directory / "hook"
    path.write_text(f"#!/bin/sh\nDIR={directory}\n{script}\n")
    path.chmod(0o755)
    return Hooks({"h": path, "gone": directory / "gone"}, seconds, directory, {"HOOK_NODE": "a"})


def test_arguments_are_given_as_they_are(tmp_path: Path) -> None:
    """No shell looks at them."""
    given = ["", "a b", "$(touch x)", ";ls", "'\"\n", "-n", "*", "ü"]
    hooks(tmp_path, 'for each in "$@"; do printf "%s|" "$each" >> $DIR/got; done').carry_out("h", RunHook(given), FIRST)
    assert (tmp_path / "got").read_text() == "".join(f"{each}|" for each in given)


def test_it_has_none_of_the_node_s_secrets_and_descriptors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TXHA_PEER__SECRET", "s3cr3t")
    monkeypatch.setenv("PGPASSWORD", "s3cr3t")
    secret = os.open(tmp_path / "secret", os.O_RDWR | os.O_CREAT)
    os.set_inheritable(secret, True)
    try:
        known = hooks(tmp_path, "env > $DIR/env; ls -l /proc/self/fd > $DIR/fds; pwd > $DIR/cwd; cat > $DIR/in")
        known.carry_out("h", RunHook(["x"]), ActionContext("ab" * 16, 7, False))
    finally:
        os.close(secret)
    environment = dict(line.split("=", 1) for line in (tmp_path / "env").read_text().splitlines())
    assert "s3cr3t" not in str(environment) and not any(each.startswith("TXHA") for each in environment)
    ours = {key: value for key, value in environment.items() if key.startswith("HOOK_")}
    assert ours == {
        "HOOK_NAME": "h",
        "HOOK_NODE": "a",
        "HOOK_CALL_ID": "ab" * 16,
        "HOOK_TNX_ID": "7",
        "HOOK_UNDO": "0",
        "HOOK_INITIAL": "0",
    }
    assert str(tmp_path / "secret") not in (tmp_path / "fds").read_text()
    assert (tmp_path / "cwd").read_text() == "/\n" and (tmp_path / "in").read_text() == ""


def test_undoing_is_said(tmp_path: Path) -> None:
    known = hooks(tmp_path, 'echo "$HOOK_UNDO $HOOK_INITIAL $#" > $DIR/got')
    known.carry_out("h", RunHook(None), FIRST._replace(undo=True))
    assert (tmp_path / "got").read_text() == "1 1 0\n"
    assert known.initial("h") == RunHook(None)


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("echo out; echo 'the disk is full' >&2; exit 3", r"ended with exit status 3: out\nthe disk is full"),
        ("exit 1", "exit status 1, and said nothing"),
        ("kill -9 $$", "by signal 9"),
    ],
)
def test_why_it_failed_is_told(script: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(ActionFailed, match=said):
        hooks(tmp_path, script).carry_out("h", RunHook([]), FIRST)


def test_what_cannot_be_run_is_told(tmp_path: Path) -> None:
    known = hooks(tmp_path, "exit 0")
    with pytest.raises(ActionFailed, match=r"no hook 'other': add hooks\.other"):
        known.carry_out("other", RunHook([]), FIRST)
    with pytest.raises(ActionFailed, match=r"no hook '/bin/sh'"):
        known.initial("/bin/sh")
    with pytest.raises(ActionFailed, match="gone cannot be run: No such file"):
        known.carry_out("gone", RunHook([]), FIRST)
    with pytest.raises(ActionFailed, match="cannot be given a NUL"):
        known.carry_out("h", RunHook(["a\0b"]), FIRST)


def gone(pid: int) -> bool:
    """Ended; one that no process has waited for is a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except (FileNotFoundError, ProcessLookupError):
        return True


def test_one_that_hangs_is_killed_with_all_that_it_has_started(tmp_path: Path) -> None:
    known = hooks(tmp_path, "echo begun; sleep 1000 & echo $! > $DIR/child; wait", seconds=0.5)
    with pytest.raises(ActionFailed, match=r"not ended within hook_seconds \(0.5 s\): begun"):
        known.carry_out("h", RunHook([]), FIRST)
    wait_until(lambda: gone(int((tmp_path / "child").read_text())), 10, "the end of what it has started")


def test_what_it_leaves_is_killed_and_keeps_no_call_waiting(tmp_path: Path) -> None:
    """It holds the hook's output open."""
    known = hooks(tmp_path, "sleep 1000 & echo $! > $DIR/child")
    for _ in range(2):
        known.carry_out("h", RunHook([]), FIRST)
        wait_until(lambda: gone(int((tmp_path / "child").read_text())), 10, "the end of what it has left")


def test_its_output_is_bounded(tmp_path: Path) -> None:
    """It is read to its end, so that the hook goes on, and the end of it is kept."""
    with pytest.raises(ActionFailed) as failed:
        hooks(tmp_path, "head -c 20000000 /dev/zero | tr '\\0' x; echo the end; exit 1").carry_out(
            "h", RunHook([]), FIRST
        )
    assert str(failed.value).endswith("xthe end") and len(str(failed.value)) < OUTPUT_KEPT + 200


def test_endless_output_ends_with_its_time(tmp_path: Path) -> None:
    with pytest.raises(ActionFailed, match="not ended within"):
        hooks(tmp_path, "yes", seconds=0.3).carry_out("h", RunHook([]), FIRST)


def in_a_thread(work: Callable[[], None]) -> tuple[threading.Thread, list[ActionFailed]]:
    failed: list[ActionFailed] = []

    def run() -> None:
        try:
            work()
        except ActionFailed as error:
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    return thread, failed


def test_a_node_that_ends_ends_its_hook_and_begins_none(tmp_path: Path) -> None:
    known = hooks(tmp_path, "echo $$ > $DIR/begun.new; mv $DIR/begun.new $DIR/begun; exec sleep 1000", seconds=100)
    thread, failed = in_a_thread(lambda: known.carry_out("h", RunHook([]), FIRST))
    wait_until((tmp_path / "begun").exists, 10, "the hook")
    known.stop()
    thread.join(10)
    assert "the node is stopping" in str(failed[0]) and gone(int((tmp_path / "begun").read_text()))
    with pytest.raises(ActionFailed, match="the node is stopping"):
        known.carry_out("h", RunHook([]), FIRST)


LEFT_BEHIND = """
import sys
from pathlib import Path
from broker_plugin.node.calls.actions import ActionContext
from broker_plugin.node.calls.hooks import Hooks
from txobserver.actions import RunHook
directory = Path(sys.argv[1])
Hooks({"h": directory / "hook"}, 100, directory, {}).carry_out("h", RunHook([]), ActionContext("", 0, False))
"""


def test_none_runs_beside_one_that_a_killed_node_has_left(tmp_path: Path) -> None:
    known = hooks(tmp_path, "echo $$ > $DIR/begun.new; mv $DIR/begun.new $DIR/begun; exec sleep 1000")
    node = subprocess.Popen([sys.executable, "-c", LEFT_BEHIND, str(tmp_path)])
    wait_until((tmp_path / "begun").exists, 20, "the hook")
    node.kill()
    node.wait()
    pid = int((tmp_path / "begun").read_text())
    wait_until(lambda: (tmp_path / LOCK_FILE).read_text() == f"{pid}\n", 10, "its number")
    try:
        with pytest.raises(ActionFailed, match=rf"waits: .*\(process {pid}\)"):
            known.carry_out("h", RunHook([]), FIRST)
    finally:
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: gone(pid), 10, "its end")
    (tmp_path / "hook").write_text("#!/bin/sh\nexit 0\n")
    known.carry_out("h", RunHook([]), FIRST)


def test_it_waits_no_longer_than_the_hook_takes(tmp_path: Path) -> None:
    began = time.monotonic()
    hooks(tmp_path, "exec >&- 2>&-; exit 0", seconds=300).carry_out("h", RunHook([]), FIRST)
    assert time.monotonic() - began < 250, "a hook that has closed its output has ended, and not used its time up"


def test_a_full_disk_ends_no_hook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which process has the lock cannot be noted then."""

    def full(*given: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    for name in ("pwrite", "ftruncate"):
        monkeypatch.setattr(os, name, full)
    hooks(tmp_path, "echo ran > $DIR/got").carry_out("h", RunHook([]), FIRST)
    assert (tmp_path / "got").read_text() == "ran\n"


def test_a_lock_that_cannot_be_opened_is_a_failure_of_the_action(tmp_path: Path) -> None:
    (tmp_path / LOCK_FILE).mkdir()
    with pytest.raises(ActionFailed, match=r"hooks\.lock: Is a directory"):
        hooks(tmp_path, "exit 0").carry_out("h", RunHook([]), FIRST)
