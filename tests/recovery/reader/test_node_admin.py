"""What listens at the port of a node that was killed need not be a node: it can neither fill the operator's memory nor
keep a command waiting."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from recovery.reader import node_admin
from recovery.reader.node_admin import AnswerLost, ask


class Stranger(threading.Thread):
    """Answers whatever comes with pieces of a line that has no end, each after a while."""

    def __init__(self, directory: Path, piece: bytes, every: float) -> None:
        super().__init__(daemon=True)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._piece, self._every = piece, every
        self.ended = threading.Event()
        port = self._listener.getsockname()[1]
        (directory / "admin.json").write_text(json.dumps({"port": port, "token": "stale"}))

    def run(self) -> None:
        connection, _ = self._listener.accept()
        with suppress(OSError), connection:
            while not self.ended.wait(self._every):
                connection.sendall(self._piece)


@pytest.fixture(name="directory")
def node_directory(tmp_path: Path) -> Iterator[Path]:
    directory = tmp_path / "node-1"
    directory.mkdir()
    yield directory


@pytest.mark.timeout(60)
def test_an_answer_that_comes_octet_by_octet_is_not_waited_for(directory: Path) -> None:
    stranger = Stranger(directory, b"x", 0.05)
    stranger.start()
    with pytest.raises(AnswerLost, match=r"node-1 does not answer within 0\.5 s"):
        ask(directory, "status", timeout=0.5)
    stranger.ended.set()


@pytest.mark.timeout(60)
def test_an_answer_without_end_is_not_kept(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_admin, "MAX_ANSWER", 1 << 20)
    stranger = Stranger(directory, b"x" * 65536, 0.0)
    stranger.start()
    with pytest.raises(AnswerLost, match="node-1 does not answer: its answer is longer than 1048576 bytes"):
        ask(directory, "status", timeout=30)
    stranger.ended.set()


@pytest.mark.timeout(60)
def test_a_node_that_goes_before_it_answers_may_have_done_what_it_was_asked(directory: Path) -> None:
    stranger = Stranger(directory, b"", 0.0)
    stranger.ended.set()
    stranger.start()
    with pytest.raises(AnswerLost, match=r"node-1 (gave no answer|does not answer)"):
        ask(directory, "status", timeout=30)
