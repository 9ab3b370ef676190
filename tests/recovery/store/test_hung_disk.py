"""A disk that neither writes nor fails: the end of a store does not wait for it without limit."""

from __future__ import annotations

from pathlib import Path
from threading import Event
from types import SimpleNamespace

import pytest

from recovery.store import store as store_module
from recovery.store.files import REAL_FILES
from recovery.store.store import StoreHung
from recovery.store.worker import Worker
from tests.recovery.store.test_store import meta_at
from tests.support.logs import Posts, frame, open_store
from txobserver.ids import Position


def test_worker_stopped_while_its_job_hangs() -> None:
    goes_on, posts = Event(), Posts()
    worker = Worker("hung", posts.queue.put)
    worker.submit(lambda: goes_on.wait() and None, posts.done)
    assert not worker.stop(0.01)
    goes_on.set()
    assert worker.stop(60.0) and posts.wait() == [None]


def test_a_job_that_fails_in_a_way_that_nobody_expects_is_reported_and_others_follow() -> None:
    """A thread that ended with it would leave a node that acknowledges nothing any more, and says nothing."""
    posts, done = Posts(), list[int]()
    worker = Worker("failing", posts.queue.put)
    worker.submit(lambda: [][1], posts.done)
    worker.submit(lambda: done.append(2), posts.done)
    failed, fine = posts.wait(2)
    assert isinstance(failed, store_module.StoreError) and "IndexError" in str(failed)
    assert fine is None and done == [2] and worker.stop(60.0)


@pytest.mark.parametrize("hangs", ["log", "state"])
def test_store_closed_while_its_disk_hangs(hangs: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It stays locked, and says what has happened; what was synced before is there for the next process."""
    monkeypatch.setattr(store_module, "CLOSE_SECONDS", 0.05)
    posts, goes_on, hung = Posts(), Event(), Event()
    store = open_store(tmp_path / "n", posts)
    list(store.suffix())
    store.append(frame(1), posts.done)
    assert posts.wait() == [None]

    def hang(*arguments: object) -> None:
        hung.set()
        assert goes_on.wait(60.0)

    if hangs == "log":
        monkeypatch.setattr(type(REAL_FILES), "sync", hang)
        store.append(frame(4), posts.done)
    else:
        monkeypatch.setattr(store.base, "write", hang)
        store.checkpoint(meta_at(3), posts.done)
    assert hung.wait(60.0)
    with pytest.raises(StoreHung, match=r"has not finished what it was to write within 0\.05 s"):
        store.close()
    assert store.tail == Position(1, 3)
    with pytest.raises(store_module.StoreError, match="in use"):
        open_store(tmp_path / "n", posts)
    goes_on.set()


def test_the_threads_of_a_store_share_the_time_of_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store, now, asked, stop = open_store(tmp_path / "n", Posts()), [100.0], list[float](), Worker.stop

    def slowly(worker: Worker, seconds: float) -> bool:
        asked.append(seconds)
        now[0] += 7.0
        return stop(worker, 60.0)

    monkeypatch.setattr(Worker, "stop", slowly)
    monkeypatch.setattr(store_module, "time", SimpleNamespace(monotonic=lambda: now[0]))
    store.close()
    assert asked == [store_module.CLOSE_SECONDS, store_module.CLOSE_SECONDS - 7.0, 0.0]
