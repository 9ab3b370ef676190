"""What must hold when everything is mended, settled and booked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

from python_tests.suites.coordinator.transfer import COMMITTED, ROLLED_BACK
from python_tests.suites.money.books import ACCOUNTS, BALANCE, Books, Entry
from python_tests.suites.money.case import NOTHING


def _sum(books: Books) -> Iterator[str]:
    had = len(books.by) * ACCOUNTS * BALANCE
    there = sum(book.balance for book in books.by.values())
    on_its_way = sum(each.amount for each in books.waiting)
    if there + on_its_way != had:
        yield f"{there} is on the accounts and {on_its_way} in the queues, and it was {had}"


def _once(books: Books) -> Iterator[str]:
    one, other = books.by.values()
    for here, there in ((one, other), (other, one)):
        sent, booked = Counter(map(_what, here.sent)), Counter(map(_what, there.booked))
        on_its_way = Counter(map(_what, books.waiting))
        for each in sent | booked:
            if sent[each] != 1 or booked[each] + on_its_way[each] != 1:
                yield (
                    f"{each[0]} of {each[1]} was sent {sent[each]} times, booked {booked[each]} times, and is "
                    f"{on_its_way[each]} times in a queue"
                )


def _what(entry: Entry) -> tuple[str, int]:
    return entry.transfer, entry.amount


def _told(books: Books, told: tuple[str, ...], must: int) -> Iterator[str]:
    done = Counter(each.attempt for book in books.by.values() for each in (*book.sent, *book.booked))
    for attempt in books.attempts:
        if attempt.told in told and done[attempt.name] != must:
            yield f"{attempt.kind} {attempt.name} was told {attempt.told}, and is there {done[attempt.name]} times"


def _drained(books: Books) -> Iterator[str]:
    for each in books.waiting:
        yield f"{each.transfer} is still in a queue"


def _prepared(books: Books) -> Iterator[str]:
    for each in books.prepared:
        yield f"{each} is prepared in a database"


def _branches(books: Books) -> Iterator[str]:
    for each in books.branches:
        yield f"{each} is in doubt at the broker"


def _settled(books: Books) -> Iterator[str]:
    yield from books.unsettled
    for name, book in books.by.items():
        for each in book.undecided:
            yield f"{name} does not know that {each} is carried out"


def _unforeseen(books: Books) -> Iterator[str]:
    yield from books.unforeseen


def _goes_on(books: Books) -> Iterator[str]:
    yield from books.stuck


CHECKS: dict[str, tuple[str, Callable[[Books], Iterator[str]]]] = {
    "the sum": ("the accounts of both databases and the queues hold what they held", _sum),
    "once": ("each transfer that was sent was booked once, and nothing else was", _once),
    "told committed": (
        "what a teller was told to be committed is there, once",
        lambda books: _told(books, (COMMITTED,), 1),
    ),
    "told rolled back": (
        "of what a teller was told to be rolled back there is nothing",
        lambda books: _told(books, (ROLLED_BACK, NOTHING), 0),
    ),
    "nothing waits": ("both queues are empty", _drained),
    "nothing is prepared": ("no server of a database has a prepared transaction", _prepared),
    "no branch": ("the broker has no branch that is in doubt", _branches),
    "nothing unforeseen": ("no process ends with what is not promised, and no decision is contradicted", _unforeseen),
    "goes on": ("a teller that nothing hinders any more ends its work", _goes_on),
    "settled": ("the last recovery runs say that nothing is left, and no decision waits for a resource", _settled),
}
"""What each means, and what finds what is against it."""


def judge(books: Books) -> dict[str, list[str]]:
    """What was found, by check; nothing where all of them hold."""
    found = {name: list(look(books)) for name, (_, look) in CHECKS.items()}
    return {name: said for name, said in found.items() if said}
