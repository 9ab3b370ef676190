"""The limits that the state machines keep, in seconds and bytes."""

from __future__ import annotations

from dataclasses import dataclass

from txobserver.work_limits import WorkLimits

LEAST_BEATS = 3
"""So many beats fit into a link's deadline at least: one that is late, and one that was lost, end no link."""


@dataclass(frozen=True)
class Settings:
    """Timing and sizes of one node. All times are seconds on the shell's monotonic clock.

    ``lease_ttl``: how long a lease holds from before its renewal was sent. ``prepare_timeout``: how long a backup may
    owe an acknowledgement before it leaves the ready set. ``backup_timeout``: how long a new primary waits for an
    expected backup. ``link_down_grace``: how long a lost connection may be down before its backup is taken out.
    ``beat_every``: how often a node speaks to every peer; ``link_deadline``: after how long without a byte from a peer
    the link with it is down (``ha.link_beats``).
    ``heartbeat_every``: how often a primary speaks to a backup even if nothing happens; ``silence``: after how long
    without a word a backup takes its attachment for ended. ``lease_drift``: by how much one node's clock may run slower
    than another's, as a fraction; a primary gives up its lease by so much before it ends. ``lease_before``: for how
    long a node of an earlier version waits, that does not wait for ``lease_ttl``; 0: as long as this one.
    ``portion_bytes``: how much a joiner that does not count yet is sent at a time; ``small_lag``: with how many events
    still lacking it may count, since it has those in a moment. ``backlog_bytes``: how much of the stream may wait to
    pass the commit point before clients are not read any more; ``frame_bytes``: how much of it makes one frame, unless
    a single event is larger; small events count for more than their bytes; ``recent_bytes``: how much of its end a
    primary keeps in memory for its backups; ``feed_bytes``: and every node for those who follow what has passed the
    commit point. ``outcomes_kept``: how many outcomes of each kind (branches, tokens, global decisions) are remembered;
    ``outcome_seconds``: and for how long at least; the same on all nodes. ``work``: how much clients may have open in
    transactions. ``apply_steps``: how many messages a turn of the loop lets enter and leave the queues: more than that
    takes several turns. ``drain_seconds``: how long a primary that hands over waits for what its clients have begun to
    be decided and answered; 0: it closes them at once. ``call_retry``: how long after a cluster call has failed on a
    node it is run there again; ``ticket_timeout``: how long an initiator may have the ticket; ``calls_kept``: how many
    calls the history holds that a primary writes. ``min_ready``: below how many ready members nothing new is committed;
    ``follow_members``: that is a majority of the members that count instead, where the record says who is one.
    """

    lease_ttl: float = 1.0
    renew_every: float = 0.2
    prepare_timeout: float = 3.0
    backup_timeout: float = 5.0
    link_down_grace: float = 0.2
    beat_every: float = 0.2
    link_deadline: float = 0.75
    probe_timeout: float = 0.15
    rejoin_every: float = 0.5
    heartbeat_every: float = 1.0
    silence: float = 3.0
    lease_drift: float = 0.02
    lease_before: float = 0.0
    min_ready: int = 1
    follow_members: bool = False
    window_bytes: int = 4 << 20
    portion_bytes: int = 1 << 20
    small_lag: int = 1000
    backlog_bytes: int = 8 << 20
    recent_bytes: int = 64 << 20
    feed_bytes: int = 8 << 20
    frame_bytes: int = 2 << 20
    checkpoint_bytes: int = 64 << 20
    checkpoint_every: float = 5.0
    outcomes_kept: int = 100_000
    outcome_seconds: float = 86_400.0
    work: WorkLimits = WorkLimits()  # noqa: RUF009 -- immutable
    apply_steps: int = 1000
    call_retry: float = 1.0
    drain_seconds: float = 1.0
    ticket_timeout: float = 10.0
    calls_kept: int = 100

    @property
    def lease_seconds(self) -> float:
        """For how long, in seconds, a primary counts on a lease, from before the change that it has it by was sent."""
        return self.lease_ttl * (1 - self.lease_drift)

    @property
    def speak_every(self) -> float:
        """How often a backup says that it is alive: well within the times after which it is taken for silent."""
        return min(self.heartbeat_every, self.prepare_timeout / 3, self.backup_timeout / 3)

    @property
    def longest_step(self) -> float:
        """The longest step of its clock, in seconds, in which a candidate counts as watching the record. The shell's
        ticks must be clearly shorter, or no node ever takes over (``renew_every_below_the_tick``)."""
        return max(self.renew_every, self.lease_ttl / 4)

    @property
    def longest_counted(self) -> float:
        """The longest step of its clock, in seconds, that a primary holds against others whole (``ha.watch``):
        in one that is longer, every node may have spoken and nothing has been read."""
        return min(self.longest_step, self.speak_every)

    @property
    def longest_unheard(self) -> float:
        """The longest step of its clock, in seconds, in which a node counts as listening to its peers: in one that is
        longer, each of them may have beaten and nothing has been read."""
        return min(self.longest_counted, self.beat_every)
