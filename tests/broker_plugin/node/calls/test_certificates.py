"""The action ``certificates``: what stands in the files is in force from then on, or what was before."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path

import pytest

from broker_plugin.node.calls.actions import ActionContext, ActionFailed
from broker_plugin.node.calls.certificates import Certificates
from broker_plugin.tls.contexts import Contexts
from tests.support.certificates import Authority
from txobserver.actions import ReloadCertificates

NOTHING = ReloadCertificates()


class Node:
    def __init__(self, directory: Path) -> None:
        self.authority = Authority(directory)
        self.contexts = Contexts(self.authority.issue("node-1"))
        self.certificates = Certificates(self.contexts)
        self.told: list[bool] = []
        self.certificates.on_change = self.told.append

    def renew(self, days: int) -> None:
        self.authority.issue("node-1", until=timedelta(days=days))

    def run(self, call: str, undo: bool = False) -> None:
        asyncio.run(self.certificates.run("", NOTHING, ActionContext(call, 0, undo)))


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def test_it_reads_the_files_again(node: Node) -> None:
    before = node.contexts.in_force
    node.renew(9)
    node.run("a")
    assert node.contexts.in_force is not before and node.told == [True]
    shown = node.certificates.shown()
    assert shown is not None and shown["not_after"] == node.contexts.not_after.isoformat()
    assert 8 * 86400 < shown["expires_seconds"] <= 9 * 86400


def test_a_call_that_is_not_made_leaves_what_was_in_force_also_where_it_ran_twice(node: Node) -> None:
    before = node.contexts.in_force
    for days in (9, 10):
        node.renew(days)
        node.run("a")
    node.run("a", undo=True)
    assert node.contexts.in_force is before and node.told == [True, True, False]
    node.run("a", undo=True)
    assert node.contexts.in_force is before and node.told == [True, True, False]


def test_the_undoing_of_another_call_changes_nothing(node: Node) -> None:
    node.renew(9)
    node.run("a")
    renewed = node.contexts.in_force
    node.run("b", undo=True)
    assert node.contexts.in_force is renewed


def test_files_that_cannot_be_used_are_a_failure_and_change_nothing(node: Node) -> None:
    before = node.contexts.in_force
    node.renew(-1)
    with pytest.raises(ActionFailed, match="has expired"):
        node.run("a")
    assert node.contexts.in_force is before and not node.told


def test_a_node_without_tls_has_nothing_to_read_and_cannot_begin() -> None:
    certificates = Certificates(None)
    asyncio.run(certificates.run("", NOTHING, ActionContext("a", 1, False)))
    assert certificates.shown() is None and certificates.expires() is None
    with pytest.raises(ActionFailed, match="ask a node that has one"):
        certificates.initial("")
