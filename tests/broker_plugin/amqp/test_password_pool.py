"""Passwords are verified in threads: once for all that wait, in turn by address, never for clients that are gone."""

from __future__ import annotations

import asyncio
import hashlib
from base64 import b64encode
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from broker_plugin.amqp import hash_renewals
from broker_plugin.amqp import password_pool as module
from broker_plugin.amqp.password_pool import PasswordPool
from broker_plugin.amqp.protocol.passwords import is_current, matches, new_hash
from broker_plugin.amqp.protocol.sasl import Credentials
from tests.broker_plugin.amqp.protocol.test_passwords import of_rabbitmq
from tests.support.guards import strict_guard

KEPT = new_hash("right", bytes(16))
OTHER = new_hash("other", bytes(16))


class Threads:
    """Jobs that are done when the test says so; ``asked``: the passwords in the order in which they were begun."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.waiting: list[tuple[Callable[[], Any], Callable[[Any], None]]] = []

    def begin(self, executor: Any, job: Callable[[], Any], then: Callable[[Any], None]) -> None:
        self.asked.append(job.__self__.credentials.password)  # type: ignore[attr-defined]
        self.waiting.append((job, then))

    def end(self) -> None:
        """The first job is done."""
        job, then = self.waiting.pop(0)
        future: asyncio.Future[Any] = asyncio.Future(loop=asyncio.new_event_loop())
        future.set_result(job())
        then(future)


class Pool:
    """A pool, and what its clients were told; ``gone``: the clients that want no answer any more."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(module, "workers", lambda: 1)
        self.threads = Threads()
        guard = strict_guard()
        guard.run_in_executor = self.threads.begin  # type: ignore[method-assign]
        self.renewed: list[tuple[str, str, str]] = []
        self.taken: list[Callable[[bool], None]] = []
        self.pool = PasswordPool(guard, self._renewed)
        self.told: list[tuple[str, bool]] = []
        self.gone: set[str] = set()

    def _renewed(self, user: str, kept: str, fresh: str, taken: Callable[[bool], None]) -> None:
        self.renewed.append((user, kept, fresh))
        self.taken.append(taken)

    def check(
        self,
        who: str,
        password: str = "right",
        kept: str | None = KEPT,
        address: str = "192.0.2.1",
        user: str = "u",
    ) -> None:
        self.pool.check(
            kept,
            Credentials(user, password),
            address,
            lambda right: self.told.append((who, right)),
            lambda: who not in self.gone,
        )


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch) -> Iterator[Pool]:
    found = Pool(monkeypatch)
    yield found
    found.pool.stop()


def test_one_verification_answers_all_that_wait_for_it_and_is_remembered(pool: Pool) -> None:
    for who in "abc":
        pool.check(who)
    assert pool.told == [] and pool.threads.asked == ["right"]
    pool.threads.end()
    assert pool.told == [("a", True), ("b", True), ("c", True)]
    pool.check("d", address="198.51.100.9")
    assert pool.told[-1] == ("d", True) and pool.threads.asked == ["right"]


def test_what_was_right_is_not_right_for_another_hash(pool: Pool) -> None:
    """Of another password, or of a user that there is no more."""
    pool.check("a")
    pool.threads.end()
    for kept in (OTHER, None):
        pool.check("b", kept=kept)
        pool.threads.end()
        assert pool.told[-1] == ("b", False)


def test_a_wrong_password_is_never_remembered(pool: Pool) -> None:
    for _ in range(2):
        pool.check("a", "wrong")
        pool.threads.end()
    assert pool.told == [("a", False)] * 2 and pool.threads.asked == ["wrong"] * 2


def test_the_addresses_take_turns(pool: Pool) -> None:
    """One that sends a hundred wrong passwords makes another wait for two verifications at most."""
    for number in range(100):
        pool.check("eve", f"wrong {number}", address="192.0.2.1")
    pool.check("ann", address="192.0.2.2")
    pool.check("eve", "wrong last", address="192.0.2.1")
    pool.threads.end()
    pool.threads.end()
    pool.threads.end()
    assert ("ann", True) in pool.told


def test_what_nobody_waits_for_is_passed_over(pool: Pool) -> None:
    pool.check("a", "first")
    for number in range(50):
        pool.check("gone", f"wrong {number}")
    pool.check("b", "last")
    pool.gone.add("gone")
    pool.threads.end()
    assert pool.threads.asked == ["first", "last"]
    pool.threads.end()
    assert [who for who, _ in pool.told] == ["a", "b"] and not pool.pool._jobs


@pytest.mark.parametrize("kept", [of_rabbitmq("sha256", "right"), of_rabbitmq("sha512", "right")])
def test_a_weak_hash_is_made_anew_at_the_first_login(pool: Pool, kept: str) -> None:
    pool.check("wrong", "wrong", kept)
    assert pool.told == [("wrong", False)] and pool.threads.asked == []
    pool.check("a", kept=kept)
    assert pool.told[-1] == ("a", True), "it waits for nothing"
    pool.threads.end()
    ((user, before, fresh),) = pool.renewed
    assert (user, before) == ("u", kept) and is_current(fresh) and matches(fresh, "right")
    pool.check("b", kept=fresh)
    assert pool.told[-1] == ("b", True) and len(pool.threads.asked) == 1, "the strong one is known already"


WEAK = of_rabbitmq("sha256", "right")
OF_FEWER_ROUNDS = "$scrypt$ln=4,r=8,p=1$" + new_hash("right", bytes(16)).split("$")[3] + "$"
OF_FEWER_ROUNDS += b64encode(hashlib.scrypt(b"right", salt=bytes(16), n=16, r=8, p=1, dklen=32)).decode().rstrip("=")


def all_done(pool: Pool) -> None:
    while pool.threads.waiting:
        pool.threads.end()


@pytest.mark.parametrize("kept", [WEAK, OF_FEWER_ROUNDS])
def test_users_with_one_weak_hash_get_one_of_their_own_each(kept: str, pool: Pool) -> None:
    """Their passwords are one, and an import gave them one and the same hash."""
    for user in ("ua", "ub", "uc"):
        for _ in range(3):
            pool.check(user, kept=kept, user=user)
            all_done(pool)
    assert [user for user, _, _ in pool.renewed] == ["ua", "ub", "uc"] and len({each[2] for each in pool.renewed}) == 3


@pytest.mark.parametrize("kept", [WEAK, OF_FEWER_ROUNDS])
def test_users_with_one_weak_hash_who_log_in_at_once_get_one_of_their_own_each(kept: str, pool: Pool) -> None:
    for user in ("ua", "ub"):
        pool.check(user, kept=kept, user=user)
    all_done(pool)
    assert sorted(user for user, _, _ in pool.renewed) == ["ua", "ub"]


def test_a_hash_that_was_not_taken_is_given_again_at_the_next_login_and_not_made_again(pool: Pool) -> None:
    """There was no primary at that moment."""
    for number in range(1, 5):
        pool.check("a", kept=WEAK)
        all_done(pool)
        assert len(pool.renewed) == number and len(pool.threads.asked) == 1
        pool.taken.pop()(False)
    assert len(set(pool.renewed)) == 1
    pool.check("a", kept=WEAK)
    pool.taken.pop()(True)
    assert not pool.pool._renewals._of


def test_one_hash_of_a_user_is_made_or_given_at_a_time(pool: Pool) -> None:
    for _ in range(100):
        pool.check("a", kept=WEAK)
    assert pool.threads.asked == ["right"] and not pool.renewed
    all_done(pool)
    for _ in range(100):
        pool.check("a", kept=WEAK)
    assert len(pool.renewed) == 1 and not pool.threads.waiting


def test_another_weak_hash_of_a_user_is_made_anew_too(pool: Pool) -> None:
    """An operator gave the user the password again, as a hash of RabbitMQ's, before the first one was taken."""
    other = of_rabbitmq("sha512", "right")
    pool.check("a", kept=WEAK)
    all_done(pool)
    pool.check("a", kept=other)
    assert len(pool.renewed) == 1, "one at a time"
    pool.taken.pop()(False)
    pool.check("a", kept=other)
    all_done(pool)
    assert pool.renewed[-1][1] == other and len(pool.threads.asked) == 2


def test_hashes_that_are_made_anew_keep_no_login_waiting(pool: Pool) -> None:
    """All users of an import log in at once: a login waits for two of them at most."""
    for number in range(50):
        pool.check("a", kept=WEAK, user=f"u{number}")
    pool.check("ann", "ann", new_hash("ann", bytes(16)), user="ann")
    for _ in range(3):
        pool.threads.end()
    assert ("ann", True) in pool.told and len(pool.renewed) == 2


def test_renewals_that_wait_are_bounded(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hash_renewals, "MOST_RENEWALS", 2)
    for number in range(4):
        pool.check("a", kept=WEAK, user=f"u{number}")
        all_done(pool)
        pool.taken.pop()(False)
    assert list(pool.pool._renewals._of) == ["u2", "u3"]


def test_what_is_remembered_is_bounded(pool: Pool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "REMEMBERED", 2)
    for number in range(4):
        pool.check("a", kept=new_hash("right", bytes([number] * 16)))
        pool.threads.end()
    assert len(pool.pool._right) == 2


def test_no_password_is_kept(pool: Pool) -> None:
    pool.check("a")
    pool.threads.end()
    assert b"right" not in b"".join(pool.pool._right) and not pool.pool._jobs


async def test_a_real_thread_verifies() -> None:
    pool = PasswordPool(strict_guard())
    told: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
    pool.check(KEPT, Credentials("u", "right"), "", told.set_result, lambda: True)
    assert not told.done(), "not in this turn of the loop"
    assert await told
    pool.stop()
