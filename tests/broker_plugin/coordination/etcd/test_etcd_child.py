"""The process that keeps the record in etcd: how long it waits, and what it is given."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from broker_plugin.coordination.coordination_process import ANSWER_SECONDS
from broker_plugin.coordination.etcd import etcd_child
from broker_plugin.coordination.etcd.etcd_process import EtcdProcess
from broker_plugin.coordination.etcd.place import PASSWORD, EtcdPlace
from broker_plugin.coordination.etcd.version_pipe import VersionReader
from tests.broker_plugin.coordination.contract import place_below


class Ended(Exception):
    """In place of the end of the process."""


@pytest.mark.parametrize(
    ("answer_seconds", "renewing", "call", "attempt"),
    [
        ("5.0", ("3", "0.2", "0.75"), 2.0, 0.5),
        ("8.0", ("3", "1.0", "6.0"), 3.2, 1.0),
        ("5.0", (), 2.0, 1.0),
    ],
)
def test_two_calls_fit_in_an_answer_and_an_attempt_in_a_renewal(
    answer_seconds: str,
    renewing: tuple[str, ...],
    call: float,
    attempt: float,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    """A renewal may be on its way when the node asks; and a member that hangs must not cost the lease."""
    made: list[Any] = []

    def serve(making: Callable[[], Any], *words: str) -> None:
        assert words == renewing
        made.append(making())

    def end(status: int) -> None:
        raise Ended

    monkeypatch.setattr(etcd_child, "serve", serve)
    monkeypatch.setattr(etcd_child.os, "_exit", end)
    reader = VersionReader(lambda version: None)
    with pytest.raises(Ended):
        etcd_child.main(place_below(tmp_path).url, "c", answer_seconds, str(reader.descriptor), *renewing)
    reader.close()
    (store,) = made
    assert (store._seconds, store._attempt_seconds) == (pytest.approx(call), attempt)
    assert 2 * call < float(answer_seconds) and not store._create
    store.close()


@pytest.mark.parametrize(("options", "given"), [("", False), ("?user=n", True), ("?user=n&password=@/p", False)])
def test_it_gets_no_secret_that_it_does_not_need(options: str, given: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither in its command line, which all users see, nor in its environment."""
    monkeypatch.setenv(PASSWORD, "hidden")
    monkeypatch.setenv("TXHA_PEER__SECRET", "hidden, too")
    node = EtcdProcess(EtcdPlace.of_url(f"127.0.0.1:1/x{options}"), "c", ANSWER_SECONDS)
    child = node._running()
    found = Path(f"/proc/{child.pid}/environ").read_bytes().split(b"\0")
    assert [each for each in found if b"hidden" in each] == ([f"{PASSWORD}=hidden".encode()] if given else [])
    assert b"hidden" not in Path(f"/proc/{child.pid}/cmdline").read_bytes()
    node.close()


def test_it_ends_with_its_node(tmp_path: Path) -> None:
    """Its input ends; gRPC's threads, of which one follows a stream, keep it not."""
    node = EtcdProcess(place_below(tmp_path), "c")
    assert node.read() is None
    child = node._child
    assert child is not None and child.stdin is not None and child.stdout is not None
    child.stdin.close()
    assert child.wait(60.0) == 0
    child.stdout.close()
    node._child = None  # there is none to be told that it is to end
    node.close()
