"""How many bytes clients make a node hold, and when that is too much: two marks, and what each holder counts for."""

from __future__ import annotations

import pytest

from broker_plugin.embedded.memory_budget import EVENT_BYTES, QUEUES, RECEIVED, Holder, MemoryBudget, MemoryMarks
from txobserver.work_limits import OpenWork

MARKS = MemoryMarks(low=100, high=200, hard=300, connection=150)


def test_the_alarm_stays_on_until_no_more_than_the_low_mark_is_held() -> None:
    """Else it would come and go with each message at the high mark."""
    budget = MemoryBudget(MARKS)
    course = [(200, False), (201, True), (200, True), (101, True), (100, False), (101, False), (200, False)]
    assert [(held, budget.look(held)) for held, _ in course] == course


@pytest.mark.parametrize(("octets", "events"), [(0, 0), (7, 0), (0, 3), (7, 3)])
def test_events_of_open_transactions_count_beside_their_messages(octets: int, events: int) -> None:
    """A transaction of a million acknowledgements has no octet of a message."""
    budget = MemoryBudget(MARKS)
    holder = Holder(budget)
    holder.hold(RECEIVED, 5)
    work = OpenWork()
    for each in (work, holder):
        each.open_bytes, each.open_events = octets, events
    assert budget.total_with(work) == holder.total == 5 + octets + EVENT_BYTES * events


def test_what_is_let_go_of_behind_the_end_of_its_client_counts_for_nothing() -> None:
    budget = MemoryBudget(MARKS)
    holder = Holder(budget)
    holder.hold(RECEIVED, 50)
    holder.hold(QUEUES, 10)
    assert (budget.held, budget.kinds[RECEIVED], budget.kinds[QUEUES], holder.counts) == (60, 50, 10, True)
    holder.detach()
    holder.hold(RECEIVED, -50)
    assert budget.held == 0 and not any(budget.kinds) and not any(holder.kinds) and not holder.counts


def test_a_broker_that_forgets_its_queues_holds_nothing_of_them() -> None:
    budget = MemoryBudget(MARKS)
    before = budget.shared
    before.hold(QUEUES, 60)
    budget.forget_shared()
    assert budget.held == 0 and budget.shared is not before
    before.hold(QUEUES, -60)
    budget.shared.hold(QUEUES, 7)
    assert budget.held == 7
