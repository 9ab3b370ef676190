"""A case: what a query has to carry, and what is done to it when it has come to certain points."""

from __future__ import annotations

from typing import NamedTuple

KILL_DRIVER = "kill driver"
SUSPEND = "suspend driver"
WAKE = "wake driver"
KILL_PRIMARY = "kill primary"
KILL_BROKERS = "kill all brokers"
TAKE_OVER = "take over"
LOSE_ANSWER = "lose answer"
HANG_BACKUP = "hang backup"
HANG_BACKUPS = "hang backups"
HANG_PRIMARY = "hang primary"
RESUME = "resume"
LOOK_AT_SINK = "look at the sink's record"
LOOK_AT_SOURCE = "look at the source's record"
LOOK_AT_MESSAGES = "look at messages"
PUT_BACK = "put back"
SETTLE_SPARK = "settle-spark"
GIVE_UP = "settle-spark --give-up"
LEAVE_BEHIND = "leave a backup behind"
ACCEPT_LOSS = "accept the loss"

DEEDS: dict[str, str] = {
    KILL_DRIVER: "SIGKILL of the driver; the next one has another number of partitions",
    SUSPEND: "SIGSTOP of the driver; another one is started with the same checkpoint",
    WAKE: "SIGCONT of the driver that was suspended, which goes on beside the other one until its query ends",
    KILL_PRIMARY: "SIGKILL of the primary, which is started again at once",
    KILL_BROKERS: "the same of all nodes",
    TAKE_OVER: "`txha promote` of a ready backup; the driver goes on in the middle of the take-over",
    LOSE_ANSWER: "the driver's connection is lost, with the answer that the broker has given on it",
    HANG_BACKUP: "SIGSTOP of a backup",
    HANG_BACKUPS: "the same of all backups",
    HANG_PRIMARY: "the same of the primary",
    RESUME: "SIGCONT of what hangs",
    LOOK_AT_SINK: "an operator takes the sink's record out of its queue",
    LOOK_AT_SOURCE: "the same of the source's record",
    LOOK_AT_MESSAGES: "the same of messages of the queue that is read, which the broker allows while no driver runs",
    PUT_BACK: "the operator puts back what was taken out",
    SETTLE_SPARK: "an operator runs `txha dtx settle-spark`",
    GIVE_UP: "the same with `--give-up`, though the query comes again",
    LEAVE_BEHIND: "SIGKILL of a backup, which stays down; rows are published that it never gets",
    ACCEPT_LOSS: "SIGKILL of the others, and `txha promote --accept-data-loss` of that backup; then they start again",
}
"""What can be done at a point, and what it is."""

CRASHES = (KILL_DRIVER, KILL_PRIMARY, KILL_BROKERS, TAKE_OVER, LOSE_ANSWER)

STEPS = (
    "write begun",
    "rows published",
    "branch prepared",
    "commit called",
    "record held",
    "decided",
    "one committed",
    "committed",
    "offset planned",
    "settling",
    "settled",
)
"""Steps of sink and source (``recovery.pipeline.queues.steps``)."""

LOGGED = ("offset logged", "batch read", "commit logged")
"""Steps of the engine between them, which is Spark's part."""

PREPARE, RECORD, COMMIT, SETTLEMENT = "prepare", "record", "commit", "settlement"
REQUESTS = (PREPARE, RECORD, COMMIT, SETTLEMENT)
"""Durable requests of the driver: a branch's prepare, the decision, a branch's commit, the source's settlement."""

UNSENT, SENT, ANSWERED = "unsent", "sent", "answered"
ANY, ANY_SENT = "any point", "any request sent"
"""The next point, whichever it is; the next request that has been sent."""


def request(what: str, how_far: str) -> str:
    """The point at which a request has come so far."""
    return f"{what} {how_far}"


POINTS = (*STEPS, *LOGGED, *(request(what, far) for what in REQUESTS for far in (UNSENT, SENT, ANSWERED)))


class Step(NamedTuple):
    """When the driver comes to ``point`` after it has passed it ``passes`` times, ``deeds`` are done in their order."""

    point: str
    passes: int
    deeds: tuple[str, ...]

    def __str__(self) -> str:
        passed = f" (passed {self.passes} times)" if self.passes else ""
        return f"{self.point}{passed}: {', '.join(self.deeds)}"


class Case(NamedTuple):
    """``rows`` go from queue to queue in batches of ``per_batch``, and ``steps`` are done to the query on their way.

    ``partitions``: of a batch, of one driver after the other. ``doubled``: each partition is also written by an attempt
    of which Spark hears nothing. ``astray``: a row that no queue takes until an operator declares one; None for none.
    ``patience``: the option, in seconds. ``real``: by Spark itself, and not by an engine that calls what Spark calls.
    ``tolerant``: of a case in which a loss of data is accepted: whether the query goes on behind it (failOnDataLoss is
    false and newRecord true from then on), or refuses and gets a new checkpoint.
    ``full``: no more messages may be at the source, unsettled, than two batches have.
    """

    seed: int
    rows: int
    per_batch: int
    partitions: tuple[int, ...]
    steps: tuple[Step, ...]
    doubled: bool = False
    astray: int | None = None
    patience: float = 20.0
    real: bool = False
    tolerant: bool = False
    full: bool = False

    @property
    def prefetch(self) -> int | None:
        """How many messages may be at the source; None for as many as the protocol lets a consumer have."""
        return 2 * self.per_batch if self.full else None

    @property
    def first_rows(self) -> int:
        """As many are there when the query starts; others come when it has run dry, or when everything is well."""
        return max(1, self.rows * 2 // 3)

    @property
    def accepts_loss(self) -> bool:
        """Whether a loss of data is accepted on the way."""
        return any(ACCEPT_LOSS in step.deeds for step in self.steps)

    def __str__(self) -> str:
        how = f"{self.rows} rows, {self.per_batch} a batch" + (", by Spark" if self.real else "")
        how += ", attempts doubled" if self.doubled else ""
        how += f", row {self.astray} astray" if self.astray is not None else ""
        how += ", goes on behind the loss" if self.tolerant else ""
        how += ", two batches at the source" if self.full else ""
        return f"seed {self.seed}: {how}; " + "; ".join(map(str, self.steps))
