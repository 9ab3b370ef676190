"""When a link counts as down on which nothing comes (``ha.link_beats``)."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ha.effects import CloseLink, Effect, Send
from ha.link_beats import LinkBeats
from ha.messages.beats import BEATS_FEATURE, Beat
from ha.settings import Settings

TICK = 0.02
KNOWN = frozenset({BEATS_FEATURE})
SETTINGS = Settings(beat_every=0.2, link_deadline=0.75)


class Rig:
    """A node that has peer b, of which bytes come as often as ``comes`` says."""

    def __init__(self, features: frozenset[str] = KNOWN) -> None:
        self.now = 100.0
        self.effects: list[Effect] = []
        self.down: list[tuple[str, float]] = []
        self.beats = LinkBeats(SETTINGS, {"b": features}, self.effects.append)
        if BEATS_FEATURE in features:
            self.beats.told("b", Beat(7, 200))
        self.tick(comes=True)

    def tick(self, seconds: float = TICK, comes: bool = False, first: bool = True) -> None:
        """``comes``: bytes; ``first``: they are read before the timer runs."""
        self.now += seconds
        if comes and first:
            self.beats.heard({"b"}, self.now)
        self.down += self.beats.tick(7, self.now)
        if comes and not first:
            self.beats.heard({"b"}, self.now)

    def run(self, seconds: float, comes: Callable[[], bool] = lambda: False) -> None:
        for _ in range(round(seconds / TICK)):
            self.tick(comes=comes())


def test_a_node_says_a_word_to_each_peer_again_and_again() -> None:
    rig = Rig()
    rig.run(2.0, lambda: True)
    assert rig.effects.count(Send("b", Beat(7, 200))) in (9, 10, 11) and len(rig.effects) <= 11


def test_a_link_on_which_nothing_comes_is_closed_and_the_peer_is_told_why() -> None:
    rig = Rig()
    heard_at = rig.now
    rig.run(0.7)
    assert not rig.down
    rig.run(0.1)
    assert rig.down == [("b", heard_at)]
    *_, said, closed = rig.effects
    assert said == Send("b", Beat(7, 200, unheard=True)) and closed == CloseLink("b")
    rig.run(5.0)
    assert len(rig.down) == 1, "it is judged again when something has come on the next link"


def test_the_middle_of_a_message_is_life() -> None:
    rig = Rig()
    rig.run(30.0, lambda: round(rig.now / TICK) % 35 == 0)
    assert not rig.down


def test_who_was_stopped_judges_nobody_before_it_has_read_what_came() -> None:
    """``link_judged_by_a_node_that_was_stopped``: its timer runs first."""
    rig = Rig()
    for seconds in (0.9, 5.0, 3600.0):
        rig.run(1.0, lambda: True)
        rig.tick(seconds, comes=True, first=False)
        rig.run(0.7)
        assert not rig.down
    rig.run(0.1)
    assert rig.down, "and nothing more has come"


def test_nor_where_nothing_had_come_before_for_most_of_the_deadline() -> None:
    """``link_judged_by_a_node_that_was_stopped``: what counts of the stop would be enough, and was not silent."""
    rig = Rig()
    rig.run(0.6)
    rig.tick(5.0, comes=True, first=False)
    rig.run(0.7)
    assert not rig.down


def test_of_a_long_step_as_much_counts_as_of_one_in_which_every_peer_may_have_spoken() -> None:
    """Nothing has come in it: the verdict is put off, and not for longer than that."""
    rig = Rig()
    rig.tick(10.0)
    assert not rig.down
    rig.run(0.5)
    assert not rig.down
    rig.run(0.1)
    assert rig.down


def test_a_node_that_is_always_busy_finds_out_who_is_gone() -> None:
    rig = Rig()
    for _ in range(10):
        rig.tick(0.5)
    assert rig.down


@pytest.mark.parametrize("features", [frozenset(), frozenset({"calls"})])
def test_a_peer_of_an_old_release_is_not_judged_and_not_spoken_to(features: frozenset[str]) -> None:
    """``old_peer_judged_by_the_new_deadline``."""
    rig = Rig(features)
    rig.run(10.0)
    assert not rig.down and not rig.effects


def test_a_link_on_which_nothing_has_come_yet_is_not_judged() -> None:
    """The peer may not have dialled yet."""
    beats = LinkBeats(SETTINGS, {"b": KNOWN}, lambda effect: None)
    assert not [down for number in range(500) for down in beats.tick(1, 100 + number * TICK)]


def test_a_peer_that_beats_seldom_by_its_own_configuration_has_longer() -> None:
    rig = Rig()
    rig.beats.told("b", Beat(7, 1000))
    rig.run(2.9)
    assert not rig.down
    rig.run(0.2)
    assert rig.down


def test_a_link_begins_with_a_beat() -> None:
    """So how often the peer beats is known before anything else comes: also of one that beats seldom."""
    said: list[Effect] = []
    LinkBeats(SETTINGS, {"b": KNOWN, "old": frozenset()}, said.append).up("b", 7, 100.0)
    assert said == [Send("b", Beat(7, 200))]
    LinkBeats(SETTINGS, {"b": KNOWN, "old": frozenset()}, said.append).up("old", 7, 100.0)
    assert len(said) == 1


def test_who_has_been_heard_and_has_not_beaten_is_judged() -> None:
    """``frozen_before_its_first_beat``."""
    beats = LinkBeats(SETTINGS, {"b": KNOWN}, lambda effect: None)
    beats.heard({"b"}, 100.0)
    assert [down for number in range(40) for down in beats.tick(1, 100 + number * TICK)] == [("b", 100.0)]


def test_who_hears_that_it_is_not_heard_closes_the_link_and_knows_since_when() -> None:
    """``one_of_two_connections_is_dead``: all that the peer says comes, and nothing that it is told arrives."""
    rig = Rig()
    rig.run(2.0, lambda: True)
    rig.effects.clear()
    rig.beats.told("b", Beat(7, 200))
    assert rig.effects == []
    rig.beats.told("b", Beat(7, 200, unheard=True))
    assert rig.effects == [CloseLink("b")]
    assert rig.beats.down("b", rig.now) == rig.now - 0.75
    assert rig.beats.down("b", rig.now) == rig.now, "of the next link nothing was said"


@pytest.mark.parametrize("since", [0.0, 0.5])
def test_who_was_busy_itself_holds_it_against_no_peer_that_it_was_not_heard(since: float) -> None:
    """It may not have spoken in that time; so its peers have what a lost connection has, to attach again."""
    rig = Rig()
    rig.tick(0.8, comes=True)
    rig.run(since, lambda: True)
    rig.beats.told("b", Beat(7, 200, unheard=True))
    assert rig.beats.down("b", rig.now) == rig.now


def test_who_has_not_looked_at_its_clock_since_it_was_stopped_does_so_neither() -> None:
    """What has come may be read before the timer runs."""
    rig = Rig()
    rig.run(2.0, lambda: True)
    rig.beats.told("b", Beat(7, 200, unheard=True))
    assert rig.beats.down("b", rig.now + 0.8) == rig.now + 0.8


def test_of_a_link_that_is_down_it_does_not_hold_for_the_next_when_the_peer_was_heard() -> None:
    rig = Rig()
    rig.beats.down("b", rig.now)
    rig.run(5.0)
    assert not rig.down, "nothing has come on this link yet"
    rig.tick(comes=True)
    heard_at = rig.now
    rig.run(0.8)
    assert rig.down == [("b", heard_at)]


def test_how_seldom_a_peer_beats_holds_until_it_says_otherwise() -> None:
    """It may not have linked itself anew, as the other end of the link has; and if it has, it says so at once."""
    rig = Rig()
    rig.beats.told("b", Beat(7, 1000))
    rig.beats.down("b", rig.now)
    rig.tick(comes=True)
    rig.run(2.5)
    assert not rig.down
    rig.beats.told("b", Beat(7, 200))
    rig.run(0.1)
    assert rig.down


def test_what_comes_at_the_end_of_a_long_step_has_come_then_and_not_later() -> None:
    rig = Rig()
    rig.tick(3600.0, comes=True)
    heard_at = rig.now
    rig.run(0.8)
    assert rig.down == [("b", heard_at)]


def test_where_our_own_end_alone_is_linked_anew_the_peer_is_judged_by_what_came_before() -> None:
    """``frozen_behind_one_end_of_a_link``: its own connection stands, and it says nothing for ours."""
    rig = Rig()
    rig.beats.down("b", rig.now)
    rig.tick()
    rig.beats.up("b", 7, rig.now)
    linked_at = rig.now
    rig.run(0.8)
    assert rig.down == [("b", linked_at)]


def test_of_what_came_long_before_a_link_nothing_follows() -> None:
    rig = Rig()
    rig.beats.down("b", rig.now)
    rig.run(0.8)
    rig.beats.up("b", 7, rig.now)
    rig.run(5.0)
    assert not rig.down


def test_that_it_was_not_heard_was_said_of_the_link_before() -> None:
    """``unheard_is_read_behind_the_end``: it comes by one socket, and the end by the other."""
    rig = Rig()
    rig.run(2.0, lambda: True)
    rig.beats.down("b", rig.now)
    rig.beats.told("b", Beat(7, 200, unheard=True))
    rig.beats.up("b", 7, rig.now)
    rig.run(2.0, lambda: True)
    assert rig.beats.down("b", rig.now) == rig.now


def test_whose_beats_wait_behind_a_message() -> None:
    """``a_message_takes_longer_than_the_silence``: its bytes come, and no beat can."""
    beats = LinkBeats(SETTINGS, {"b": KNOWN}, lambda effect: None)
    assert not beats.in_a_message("b", 100.0), "nothing is known of it"
    beats.tick(1, 100.0)
    beats.told("b", Beat(7, 200))
    for number in range(100):
        now = 100.0 + number * TICK
        beats.heard({"b"}, now)
        beats.tick(1, now)
        assert beats.in_a_message("b", now) == (now - 100.0 > 0.75)
    assert not beats.in_a_message("b", now + 0.76), "nothing comes any more"
    beats.told("b", Beat(7, 200))
    assert not beats.in_a_message("b", now + 0.1), "it has come"


def test_one_that_was_set_back_to_a_release_without_beats_is_in_no_message() -> None:
    """It beat once; its bytes come, and no beat ever will."""
    features = {"b": KNOWN}
    beats = LinkBeats(SETTINGS, features, lambda effect: None)
    beats.tick(1, 100.0)
    beats.told("b", Beat(7, 200))
    features["b"] = frozenset()
    beats.heard({"b"}, 101.0)
    assert not beats.in_a_message("b", 101.0)
