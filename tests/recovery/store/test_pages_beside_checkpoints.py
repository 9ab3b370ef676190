"""Pages of queues are read while the store is busy with a checkpoint."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from tests.support.logs import Posts, message, meta_of, open_store
from txobserver.ids import Position
from txobserver.ports.store import Above, Checkpoint, Entry, Page, StoreError


def checkpoint_at(sequence: int) -> Checkpoint:
    entries: dict[int, Entry | None] = {n: Entry(n, message(f"{n}")) for n in range(1, sequence + 1)}
    return Checkpoint(meta_of(Position(1, sequence), {1: entries}), {1: entries}, [], [], [])


def test_a_page_does_not_wait_for_a_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A large one takes its time, and consumers are served meanwhile."""
    posts = Posts()
    store = open_store(tmp_path / "n", posts)
    list(store.suffix())
    store.checkpoint(checkpoint_at(3), posts.done)
    posts.wait()
    go_on, write, pages = threading.Event(), store.base.write, []

    def slowly(checkpoint: Checkpoint) -> None:
        go_on.wait(60)
        write(checkpoint)

    def came(page: Page | None, error: StoreError | None) -> None:
        pages.append(page)
        posts.done(error)

    monkeypatch.setattr(store.base, "write", slowly)
    store.checkpoint(checkpoint_at(6), posts.done)
    store.read_queue(Above(1, -1, 9, 1000), came)
    assert posts.wait(1)[-1] is None and not go_on.is_set()
    assert [len(page.entries) for page in pages if page is not None] == [3]
    go_on.set()
    posts.wait(1)
    store.close()
