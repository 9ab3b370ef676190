"""A store is looked at in a child process: what becomes of each of its ends (``recovery.child``)."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

import pytest

from recovery.child import in_a_child
from txobserver.store import StoreDamaged, StoreError


def failing(error: Exception) -> Callable[[], None]:
    def job() -> None:
        raise error

    return job


def test_what_goes_well_says_nothing() -> None:
    in_a_child(lambda: None)


@pytest.mark.parametrize("error", [StoreDamaged("a page is gone"), StoreError("no such file")])
def test_its_error_is_the_parent_s(error: StoreError) -> None:
    with pytest.raises(StoreError, match=str(error)) as raised:
        in_a_child(failing(error))
    assert type(raised.value) is type(error)


def test_any_other_error_is_damage() -> None:
    with pytest.raises(StoreDamaged, match="not a number"):
        in_a_child(failing(ValueError("not a number")))


def test_a_child_that_can_say_nothing_is_waited_for_and_ends() -> None:
    """Its end of the pipe has gone before it fails; nor may it go on in its parent's place."""

    def job() -> None:
        os.closerange(3, 1024)
        time.sleep(0.2)
        raise StoreError("nobody hears this")

    with pytest.raises(StoreDamaged, match="ended with status 3"):
        in_a_child(job)


def test_a_child_that_is_killed_is_damage() -> None:
    with pytest.raises(StoreDamaged, match="ended with status -9"):
        in_a_child(lambda: os.kill(os.getpid(), 9))
