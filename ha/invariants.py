"""What must be so of a node after each of its turns: its role, its positions, and what only ever rises.

``NodeChecks.check`` is called by ``NodeCore.take_effects``, which ends each turn: everything that happened has been
told, the core has drawn its consequences, and nothing has been carried out yet (``txobserver.invariants``).
"""

from __future__ import annotations

from ha.apply.invariants import check_checkpointing, check_gate, check_replica, check_replica_deep
from ha.backup.invariants import check_backup, check_backup_deep
from ha.effect_invariants import EffectChecks
from ha.effects import Effect
from ha.membership.belonging import needed
from ha.membership.invariants import check_candidate, check_keeper
from ha.membership.node_state import ACTIVE, CATCHUP, JOINING, NODE_TABLE, READY, RECOVERING, STANDALONE
from ha.node import Node
from ha.primary.backup_invariants import check_backups, check_backups_deep
from ha.primary.invariants import check_handover, check_primary, check_primary_deep, check_star, check_star_deep
from ha.role import Role
from ha.roles import Following, Leading
from txobserver.ids import LAST_GENERATION, Position
from txobserver.invariants import DeepChecks, checking


class NodeChecks:
    """Of one node, with what it has seen at the end of the turn before."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._deep_checks = DeepChecks()
        self._effects = EffectChecks(node)
        self._generation = 0
        self._sessions = 0
        self._snapshots = 0
        self._applied = Position(0, 0)
        self._commit = 0
        self._version = 0
        self._lease_until = 0.0
        self._leading: Leading | None = None

    def check(self, role: Role, effects: list[Effect]) -> None:
        """The end of a turn. Raises InvariantBroken. A node whose store has failed says nothing any more."""
        node = self._node
        if node.failed:
            return
        with checking(f"node {node.member.node}, {node.state}, at {node.replica.tail}"):
            check_node(node)
            check_role(node, role)
            check_replica(node.replica)
            check_checkpointing(node.checkpointing)
            check_gate(node.gate)
            check_candidate(node.candidate)
            self._effects.check(role, effects)
            self._what_rises(node, role)
            if isinstance(role, Leading):
                check_leading(node, role)
            elif isinstance(role, Following):
                check_following(node, role)
            if self._deep_checks.deep():
                check_deep(node, role)

    def _what_rises(self, node: Node, role: Role) -> None:
        """What never falls while the process runs, and where it may, why."""
        replica = node.replica
        assert node.generation >= self._generation, f"P10: generation {node.generation} follows {self._generation}"
        assert node.sessions >= self._sessions, f"P10: attachment {node.sessions} follows {self._sessions}"
        assert replica._snapshots >= self._snapshots, "P9: a copy that was taken is forgotten"
        if replica._snapshots == self._snapshots:
            fell = replica.applied < self._applied
            assert not fell, f"P6: applied up to {self._applied}, and now up to {replica.applied}"
            if isinstance(role, Following) and role.backup.attached and replica.applied != self._applied:
                known = role.backup._commit
                assert replica.applied.sequence <= known, f"P6: {replica.applied} is applied, and {known} has passed"
        if isinstance(role, Leading):
            self._while_leading(role)
        else:
            self._leading = None
        self._generation, self._sessions = node.generation, node.sessions
        self._snapshots, self._applied = replica._snapshots, replica.applied

    def _while_leading(self, role: Leading) -> None:
        commit, version, until = role.primary.point.sequence, role.keeper.record.version, role.keeper._lease_until
        if role is self._leading:
            assert commit >= self._commit, f"P11: the commit point was at {self._commit}, and is at {commit}"
            assert version >= self._version, f"P10: version {version} of the record follows {self._version}"
            assert until >= self._lease_until, f"P10: a lease that ended at {self._lease_until} ends at {until}"
        else:
            beyond = self._leading is None or role.primary.generation > self._leading.primary.generation
            assert beyond, f"P10: generation {role.primary.generation} begins twice at one node"
        self._leading, self._commit, self._version, self._lease_until = role, commit, version, until


def check_node(node: Node) -> None:
    """What a node keeps whatever its role is."""
    tail = node.replica.tail
    assert node.member.node, "P10: a node without a name"
    assert node.member.incarnation, f"P2: {node.member.node} has a store without an incarnation"
    assert node.now >= 0, f"P10: it is {node.now} s"
    assert 0 <= node.generation <= LAST_GENERATION, f"P10: generation {node.generation}"
    assert tail.generation <= node.generation, f"P10: a log up to {tail} in generation {node.generation}"
    assert node.member.node not in node.linked, f"P11: {node.member.node} is linked to itself"
    assert node.sessions >= 0, f"P10: attachment {node.sessions} was asked for"
    assert node.log_first >= 1, f"P7: the log begins at {node.log_first}"
    resetting = node.replica.resyncing or not node.replica.whole
    assert resetting or node.log_first <= tail.sequence + 1, f"P7: the log begins at {node.log_first}, behind {tail}"
    known = any(node.state in (state, after) for (state, _), after in NODE_TABLE.moves.items())
    assert known, f"P10: a node is {node.state}"
    record = node.candidate.record
    assert node.state == STANDALONE or record is not None, f"P10: {node.state} before the record has been read"
    assert record is None or node.generation >= record.generation, f"P10: generation {node.generation} of a later one"


def check_role(node: Node, role: Role) -> None:
    """Each state belongs to one role."""
    assert role.node is node, "P10: a node has the role of another"
    if isinstance(role, Leading):
        assert node.state in (RECOVERING, ACTIVE), f"P10: a primary is {node.state}"
    elif isinstance(role, Following):
        assert node.state in (JOINING, CATCHUP, READY), f"P10: a backup is {node.state}"
    else:
        assert node.state in (STANDALONE, JOINING), f"P10: a node that waits is {node.state}"


def check_leading(node: Node, role: Leading) -> None:
    """A primary."""
    primary, keeper = role.primary, role.keeper
    assert primary.generation == node.generation, f"P10: generation {primary.generation} is led in {node.generation}"
    assert keeper.record.generation == node.generation, f"P10: the record is of {keeper.record.generation}"
    assert node.candidate.in_flight is None, "P10: a primary stands"
    assert node.state != ACTIVE or primary.in_step, "P2: a primary is active before all that was told has passed"
    serves = not primary.point.serving or node.state == ACTIVE
    assert serves, f"P2: a primary that is {node.state} serves clients"
    over = primary.writer.abandoned
    assert not over or not primary.point.serving, "P10: clients are served in a generation that is over"
    check_primary(primary)
    check_star(role.fanout, primary.writer)
    check_keeper(keeper, node.member, node.now)
    check_backups(role.backups)
    check_handover(role.handover, primary)
    below = primary.decisions.below_min_ready
    few = len(keeper.record.ready) < needed(keeper.record, node.settings)
    assert few or not below, f"P12: nothing is committed, and {len(keeper.record.ready)} are ready"


def check_following(node: Node, role: Following) -> None:
    """A backup."""
    backup = role.backup
    assert backup.generation == node.generation, f"P10: {backup.primary} of {backup.generation} in {node.generation}"
    assert backup._member == node.member, f"P11: {backup._member} acknowledges for another"
    attached = node.state in (CATCHUP, READY)
    assert attached == backup.attached, f"P9: {node.state}, and {'' if backup.attached else 'not '}attached"
    assert node.state != READY or node.replica.whole, "P9: a store that is being overwritten is ready"
    assert node.state != READY or backup._replicator is None, "P9: a node that copies is ready"
    assert backup.session <= node.sessions, f"P10: attachment {backup.session} was never asked for"
    check_backup(backup)


def check_deep(node: Node, role: Role) -> None:
    """Everything that is held in memory."""
    check_replica_deep(node.replica)
    if isinstance(role, Leading):
        check_primary_deep(role.primary)
        check_star_deep(role.fanout)
        check_backups_deep(role.backups)
    elif isinstance(role, Following):
        check_backup_deep(role.backup)
