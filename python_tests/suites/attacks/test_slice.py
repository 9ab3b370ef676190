"""A slice of ``make attacks``: some attacks at every port, a small part of each, and that harm is found."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from python_tests.suites.attacks.attack import Attack, Listener
from python_tests.suites.attacks.campaign import campaign, chosen, play, started
from python_tests.suites.attacks.every import MODULES
from python_tests.suites.attacks.measures import Found
from python_tests.suites.attacks.site import TxhaSite
from python_tests.suites.attacks.target import Target

SCALE = 0.05
assert MODULES


@pytest.mark.slice
def test_a_slice_of_the_attacks_does_no_harm(may_kill_nodes: None, tmp_path: Path) -> None:
    told: list[Found] = []
    found = campaign(chosen([], True), tmp_path, SCALE, told.append)
    assert found == told and len(found) == len(chosen([], True)) + 1
    assert {each.attack: each.faults for each in found if each.faults} == {}


@pytest.mark.slice
def test_a_node_that_is_killed_by_an_attack_is_found(may_kill_nodes: None, tmp_path: Path) -> None:
    """A take-over, the end of the node, and the commit that was under way."""
    with TxhaSite(tmp_path) as site, started(site, tmp_path) as victim:
        def kill(target: Target) -> str:
            os.kill(site.pids()[target.nodes()[0].name], signal.SIGKILL)
            return "killed"

        found = play(Attack("kill", Listener.FILES, "Kills the primary", kill), site, victim, 1.0)
    assert found.said == "killed"
    assert any("has ended" in fault for fault in found.faults) and any("take-over" in fault for fault in found.faults)
