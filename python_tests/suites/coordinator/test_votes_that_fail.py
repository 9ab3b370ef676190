"""A broker's vote that fails: nothing is decided, so no participant is asked, and its branch is rolled back at once."""

from __future__ import annotations

import psycopg
import pytest
import transaction
from sqlalchemy import text

from python_tests.suites.coordinator import orm
from python_tests.suites.coordinator.shop import Shop


class TimeOver(Exception):
    """What the handler of a signal raises."""


def rows(shop: Shop) -> list[tuple[bool]]:
    """What the table of decisions says."""
    with psycopg.connect(shop.dsn) as connection:
        return connection.execute("SELECT committed FROM txha_decisions").fetchall()


@pytest.mark.parametrize("spoil", ["SET TRANSACTION READ ONLY", "ROLLBACK AND CHAIN"])
def test_a_vote_that_failed_asks_for_no_decision(shop: Shop, caplog: pytest.LogCaptureFixture, spoil: str) -> None:
    """What became of a COMMIT that was never sent is no question; it was told to be left to a recovery run."""
    before = rows(shop)
    with pytest.raises(Exception, match=r"read-only|ended in the middle"), transaction.manager:
        session = shop.sessions()
        orm.place(shop.broker, session, shop.queue.own, "a")
        session.flush()
        session.execute(text(spoil))
    assert [each for each in caplog.messages if "recovery run" in each] == []
    assert rows(shop) == before
    assert shop.queue.open().in_doubt() == []
    assert shop.look() == (0, 0)


def test_a_second_broker_whose_vote_fails_is_rolled_back(shop: Shop) -> None:
    """The first one's decision is written, and is none of the second one's."""
    voted = []

    def reached(step: str) -> None:
        if step == "broker prepared":
            voted.append(step)
            if len(voted) == 2:
                raise TimeOver

    brokers = [orm.transactional(shop.urls, reached) for _ in range(2)]
    with pytest.raises(TimeOver), transaction.manager:
        session = shop.sessions()
        for index, broker in enumerate(brokers):
            orm.place(broker, session, shop.queue.own, str(index))
    assert shop.queue.open().in_doubt() == []
    assert shop.look() == (0, 0)
    for broker in brokers:
        broker.broker.close()
