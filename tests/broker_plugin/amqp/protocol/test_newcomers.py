"""Connections that have not logged in: how many there may be, and which one makes room for another."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from broker_plugin.amqp.protocol.newcomers import PATIENCE, Newcomers

STEPS = st.tuples(
    st.sampled_from(("arrive", "step", "leave", "introduced")),
    st.integers(0, 12),
    st.sampled_from("abc"),
    st.sampled_from((0.0, 0.4, 2.0)),
)


def test_one_that_stands_still_makes_room_for_another() -> None:
    newcomers: Newcomers[str] = Newcomers(2, 2)
    assert newcomers.arrive("a", "1", 0.0) == newcomers.arrive("b", "2", 0.5) == []
    assert newcomers.arrive("c", "3", PATIENCE) == ["a"]
    assert newcomers.count == 2 and "a" not in newcomers


def test_of_many_that_come_at_once_none_is_closed_for_the_last() -> None:
    newcomers: Newcomers[str] = Newcomers(2, 2)
    newcomers.arrive("a", "1", 0.0)
    newcomers.arrive("b", "2", 0.0)
    assert newcomers.arrive("c", "3", PATIENCE / 2) == ["c"]
    assert newcomers.refused == 1 and "c" not in newcomers


def test_an_address_makes_room_for_itself() -> None:
    newcomers: Newcomers[str] = Newcomers(10, 2)
    newcomers.arrive("old", "2", 0.0)
    newcomers.arrive("a", "1", 1.0)
    newcomers.arrive("b", "1", 2.0)
    assert newcomers.arrive("c", "1", 9.0) == ["a"]
    assert newcomers.arrive("d", "3", 9.0) == []


def test_who_goes_on_in_its_handshake_does_not_stand_still() -> None:
    newcomers: Newcomers[str] = Newcomers(2, 2)
    newcomers.arrive("a", "1", 0.0)
    newcomers.arrive("b", "1", 1.0)
    newcomers.step("a", 2.0)
    assert newcomers.arrive("c", "1", 3.0) == ["b"]


def test_who_has_logged_in_takes_no_place() -> None:
    newcomers: Newcomers[str] = Newcomers(1, 1)
    newcomers.arrive("a", "1", 0.0)
    newcomers.leave("a")
    newcomers.leave("a")
    assert newcomers.arrive("b", "1", 0.0) == []
    newcomers.step("a", 1.0)
    assert newcomers.count == 1


def test_a_client_that_is_introduced_counts_for_its_own_address() -> None:
    newcomers: Newcomers[str] = Newcomers(10, 2)
    for name in ("a", "b"):
        newcomers.arrive(name, "node", 0.0)
        assert newcomers.introduced(name, "client", 0.0) == []
    assert newcomers.arrive("c", "node", 0.0) == [] == newcomers.introduced("gone", "client", 0.0)
    assert newcomers.introduced("c", "client", 0.1) == ["c"] and "c" not in newcomers


@given(st.lists(STEPS, max_size=60))
def test_no_bound_is_passed_and_both_views_agree(steps: list[tuple[str, int, str, float]]) -> None:
    newcomers: Newcomers[int] = Newcomers(5, 3)
    now = 0.0
    for what, key, address, later in steps:
        now += later
        if what == "arrive" and key not in newcomers:
            closed = newcomers.arrive(key, address, now)
            assert len(closed) <= 1 and (key in newcomers) == (key not in closed)
        elif what == "introduced":
            newcomers.introduced(key, address, now)
        elif what == "step":
            newcomers.step(key, now)
        else:
            newcomers.leave(key)
        newcomers.check_invariants()
