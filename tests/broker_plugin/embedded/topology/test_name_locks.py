"""Operations on names, one after the other: who needs several waits for all of them."""

from __future__ import annotations

import pytest

from broker_plugin.embedded.topology.name_locks import NameLocks


@pytest.mark.parametrize(("first", "second"), [("q", "x"), ("x", "q")])
def test_who_needs_two_names_waits_for_both(first: str, second: str) -> None:
    """Whichever is free first."""
    locks, ran = NameLocks(), list[str]()
    locks.hold("q", "x")
    locks.run_all(("q", "x"), lambda: ran.append("both"))
    locks.release(first)
    assert ran == []
    locks.release(second)
    assert ran == ["both"]


def test_a_name_that_is_taken_while_another_one_is_waited_for() -> None:
    locks, ran = NameLocks(), list[str]()
    locks.hold("q")
    locks.run_all(("q", "x"), lambda: ran.append("both"))
    locks.hold("x")
    locks.release("q")
    locks.run("q", lambda: ran.append("q"))
    assert ran == ["q"], "who waits holds nothing"
    locks.release("x")
    assert ran == ["q", "both"]
