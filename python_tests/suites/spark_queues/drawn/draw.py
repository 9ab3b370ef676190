"""A case by its seed."""

from __future__ import annotations

import random
from collections.abc import Callable

from python_tests.suites.spark_queues.drawn.case import (
    ACCEPT_LOSS,
    ANSWERED,
    ANY,
    ANY_SENT,
    COMMIT,
    CRASHES,
    GIVE_UP,
    HANG_BACKUP,
    HANG_BACKUPS,
    HANG_PRIMARY,
    KILL_BROKERS,
    KILL_DRIVER,
    KILL_PRIMARY,
    LEAVE_BEHIND,
    LOGGED,
    LOOK_AT_MESSAGES,
    LOOK_AT_SINK,
    LOOK_AT_SOURCE,
    LOSE_ANSWER,
    POINTS,
    PREPARE,
    PUT_BACK,
    RECORD,
    REQUESTS,
    RESUME,
    SENT,
    SETTLE_SPARK,
    SETTLEMENT,
    STEPS,
    SUSPEND,
    TAKE_OVER,
    UNSENT,
    WAKE,
    Case,
    Step,
    request,
)

REAL_IN = 20
"""One case in so many is Spark's own."""

TWO_DRIVERS = 0.06
"""Of the cases that are not Spark's own, so many have two drivers at once; drawn apart, so that the others stay."""

LOSS_ACCEPTED = 0.05
"""Of the cases that are neither, so many have an accepted loss of data; drawn apart for the same reason."""

SOURCE_FULL = 0.05
"""Of the cases that are none of these, so many have a source that is full of what is not settled; drawn apart, too."""

QUICK, PATIENT = 2.0, 20.0
"""Seconds of the option patience: of a driver that gives up while an operator looks, and of one that waits."""

DECIDING = ("decided", "one committed", request(RECORD, ANSWERED), request(COMMIT, UNSENT), request(COMMIT, SENT))
"""Where the sink's record is in its queue, and not all of its branches are known to be committed."""


def draw(seed: int) -> Case:
    """The case of this seed, the same for ever."""
    by = random.Random(seed)
    family = by.choices(list(FAMILIES), [weight for weight, _ in FAMILIES.values()])[0]
    case = Case(
        seed=seed,
        rows=by.randint(6, 18),
        per_batch=by.randint(1, 4),
        partitions=tuple(by.sample((1, 2, 3), 3)),
        steps=(),
        doubled=by.random() < 0.25,
        patience=PATIENT if by.random() < 0.8 else QUICK,
    )
    if by.randrange(REAL_IN) == 0:
        return case._replace(real=True, doubled=False, patience=PATIENT, steps=_at_spark(by))
    apart = random.Random(f"two drivers at once, {seed}")
    if apart.random() < TWO_DRIVERS:
        return _two_drivers(apart, case)
    apart = random.Random(f"an accepted loss, {seed}")
    if apart.random() < LOSS_ACCEPTED:
        return _loss_accepted(apart, case)
    apart = random.Random(f"a full source, {seed}")
    if apart.random() < SOURCE_FULL:
        return _full(apart, case)
    return FAMILIES[family][1](by, case)


def _two_drivers(by: random.Random, case: Case) -> Case:
    """A driver sleeps, and with its connection goes what it has locked. It wakes up beside the next one."""
    gone = by.choice((KILL_PRIMARY, KILL_PRIMARY, TAKE_OVER, KILL_BROKERS))
    first = Step(by.choice(POINTS), by.randint(0, 2), (SUSPEND, gone))
    with_it = () if by.random() < 0.4 else (by.choice((KILL_DRIVER, KILL_DRIVER, KILL_PRIMARY, TAKE_OVER)),)
    second = Step(by.choice((ANY, *POINTS)), by.randint(0, 3), (WAKE, *with_it))
    return case._replace(patience=by.choice((QUICK, PATIENT)), steps=(first, second))


def _loss_accepted(by: random.Random, case: Case) -> Case:
    """What a backup never got is given up, and it is promoted; something else happens behind that."""
    tolerant = by.random() < 0.5
    stops = (KILL_DRIVER,) if tolerant or by.random() < 0.5 else ()
    behind = Step(by.choice(POINTS), by.randint(0, 2), (LEAVE_BEHIND,))
    accepted = Step(by.choice((ANY, *POINTS)), by.randint(0, 3), (*stops, ACCEPT_LOSS))
    case = case._replace(per_batch=by.randint(2, 8), patience=PATIENT, tolerant=tolerant)
    return case._replace(steps=(behind, accepted, _step(by)))


def _full(by: random.Random, case: Case) -> Case:
    """A driver dies between Spark's commit and its settlement, and so does the next one behind the next batch.

    With batches as large as can be, what is not settled then is nearly all that a consumer may have.
    """
    point, passes = by.choice((("offset logged", 1), ("settling", 0)))  # of the second batch: the first is committed
    first = Step(point, passes + by.randint(0, 1), (KILL_DRIVER,))
    steps = (first, Step("commit logged", 0, (KILL_DRIVER,)), _step(by))
    return case._replace(rows=18, per_batch=by.randint(2, 4), patience=PATIENT, full=True, steps=steps)


def _at_spark(by: random.Random) -> tuple[Step, ...]:
    """A pair of kills of a query whose process cannot be asked where it is but at its steps."""
    kinds = (KILL_DRIVER, KILL_PRIMARY, KILL_BROKERS, TAKE_OVER)
    return tuple(Step(by.choice(STEPS), by.randint(0, 1), (by.choice(kinds),)) for _ in range(2))


def _crash(by: random.Random, point: str) -> tuple[str, ...]:
    """A crash that can be at this point; an operator may come before the next driver does."""
    crash = by.choice([each for each in CRASHES if each != LOSE_ANSWER or point.endswith(f" {SENT}")])
    if crash == KILL_DRIVER and by.random() < 0.4:
        return (crash, by.choice((SETTLE_SPARK, SETTLE_SPARK, GIVE_UP)))
    return (crash,)


def _step(by: random.Random, point: str | None = None) -> Step:
    found = point or (ANY if by.random() < 0.3 else by.choice(POINTS))
    return Step(found, by.randint(0, 2), _crash(by, found))


def _pair(by: random.Random, case: Case) -> Case:
    """Two crashes."""
    first, second = _step(by), _step(by)
    return case._replace(steps=(first._replace(point=by.choice(POINTS) if first.point == ANY else first.point), second))


def _hung(by: random.Random, case: Case) -> Case:
    """A request that waits for backups that hang; then a crash, another one, and they go on."""
    case = case._replace(patience=PATIENT)
    what = by.choice((*REQUESTS, SETTLEMENT))
    hang = by.choice((HANG_BACKUP, HANG_BACKUPS, HANG_BACKUPS))
    others = TAKE_OVER if hang == HANG_BACKUP else KILL_DRIVER  # no node can take over if all hang
    first = by.choice((KILL_DRIVER, KILL_DRIVER, KILL_DRIVER, KILL_PRIMARY, LOSE_ANSWER, others))
    steps = [Step(request(what, UNSENT), by.randint(0, 2), (hang,))]
    if what == SETTLEMENT and by.random() < 0.6:  # that of a start, behind which other messages are taken at once
        case = case._replace(per_batch=min(case.per_batch, 2))
        steps = [Step("commit logged", by.randint(0, 1), (KILL_DRIVER,)), steps[0]._replace(passes=0)]
    if first == KILL_PRIMARY:
        second = _step(by)
        return case._replace(steps=(*steps, Step(request(what, SENT), 0, (first, RESUME)), second))
    steps.append(Step(request(what, SENT), 0, (first,)))
    second_crash = by.choice((KILL_PRIMARY, KILL_PRIMARY, KILL_PRIMARY, KILL_DRIVER, TAKE_OVER))
    deeds = (RESUME, TAKE_OVER) if second_crash == TAKE_OVER else (second_crash, RESUME)
    steps.append(Step(ANY_SENT, 0, deeds))
    return case._replace(steps=tuple(steps))


def _primary_hung(by: random.Random, case: Case) -> Case:
    """It loses its lease while it sleeps, and wakes up in the middle of what the next one does."""
    return case._replace(steps=(Step(by.choice(POINTS), by.randint(0, 2), (HANG_PRIMARY,)), _wake(by)))


def _wake(by: random.Random) -> Step:
    point = by.choice((ANY, *POINTS))
    return Step(point, by.randint(0, 2), (RESUME, by.choice((KILL_DRIVER, KILL_PRIMARY, TAKE_OVER))))


def _looked_at(by: random.Random, case: Case) -> Case:
    """An operator holds the sink's record when a driver has died, and something else happens before it is put back."""
    deeds = [KILL_DRIVER, LOOK_AT_SINK]
    if by.random() < 0.5:
        deeds.append(by.choice((SETTLE_SPARK, SETTLE_SPARK, GIVE_UP)))
    first = Step(by.choice(DECIDING), by.choice((0, 0, 1, 2)), tuple(deeds))
    second = _step(by, by.choice((ANY, "branch prepared", "commit called", request(PREPARE, ANSWERED))))
    if by.random() < 0.6:  # what the operator holds goes back by itself when the primary is another one
        second = second._replace(deeds=(KILL_DRIVER,))
    last = Step(ANY, by.choice((2, 30, 60)), (PUT_BACK,))
    return case._replace(patience=QUICK, steps=(first, second._replace(passes=0), last))


def _source_looked_at(by: random.Random, case: Case) -> Case:
    """An operator holds the source's record."""
    points = ("settling", "settled", "offset planned", "offset logged", *LOGGED)
    first = Step(by.choice(points), by.randint(0, 2), (LOOK_AT_SOURCE, *_crash(by, "")))
    return case._replace(patience=QUICK, steps=(first, _step(by), Step(ANY, by.randint(0, 4), (PUT_BACK,))))


def _messages_looked_at(by: random.Random, case: Case) -> Case:
    """An operator takes messages while no driver runs, and puts them back behind others."""
    first = Step(by.choice(POINTS), by.randint(0, 2), (KILL_DRIVER, LOOK_AT_MESSAGES))
    second = Step(by.choice((ANY, *POINTS)), by.randint(0, 1), (by.choice((PUT_BACK, KILL_DRIVER)),))
    return case._replace(patience=QUICK, steps=(first, second, Step(ANY, by.randint(0, 4), (PUT_BACK,))))


def _astray(by: random.Random, case: Case) -> Case:
    """A row that no queue takes, and an answer that is lost."""
    point = request(PREPARE, by.choice((SENT, SENT, UNSENT)))
    crash = LOSE_ANSWER if point.endswith(f" {SENT}") and by.random() < 0.5 else KILL_PRIMARY
    astray = by.choice((0, by.randrange(case.rows)))
    case = case._replace(per_batch=max(case.per_batch, 4))  # a branch of that row alone would be empty
    return case._replace(astray=astray, doubled=False, steps=(Step(point, by.choice((0, 0, 1)), (crash,)), _step(by)))


FAMILIES: dict[str, tuple[int, Callable[[random.Random, Case], Case]]] = {
    "two crashes": (36, _pair),
    "backups hang": (22, _hung),
    "the primary hangs": (5, _primary_hung),
    "the sink's record is looked at": (14, _looked_at),
    "the source's record is looked at": (6, _source_looked_at),
    "messages are looked at": (7, _messages_looked_at),
    "a row goes astray": (10, _astray),
}
"""Kinds of cases, with their weights."""
