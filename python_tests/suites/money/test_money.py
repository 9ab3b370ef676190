"""One round of ``make money``; and that each check finds what is against it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pika
import psycopg
import pytest

from python_tests.harness.pika_clients import PERSISTENT, parameters
from python_tests.suites.coordinator.crashes import AT
from python_tests.suites.coordinator.transfer import COMMITTED, KILLED, ROLLED_BACK, WORK_STEPS
from python_tests.suites.money import case
from python_tests.suites.money.books import ACCOUNTS, BALANCE, Attempt, Book, Books, Entry, read_journals
from python_tests.suites.money.campaign import Totals
from python_tests.suites.money.case import (
    APPLICATIONS,
    BOOK,
    DEEDS,
    LOG,
    RECOVER,
    SEND,
    TELLERS,
    WAYS_TO_DECIDE,
    Round,
    steps,
    ways,
)
from python_tests.suites.money.draw import STOPS, draw
from python_tests.suites.money.judge import CHECKS, judge
from python_tests.suites.money.planted import FAULTS
from python_tests.suites.money.run import Found, Run
from python_tests.suites.money.site import Ground, Site
from recovery.coordinator.broker_resource import Broker
from recovery.coordinator.names import branch_xid
from recovery.coordinator.postgresql import Postgresql
from recovery.coordinator.steps import STEPS
from recovery.coordinator.table import create_table, find_table

PAGE = Path(__file__).parents[3] / "docs" / "money.md"

SLICE, SENDS = 3, 3
"""Apart, one by a log and one by a table, messages subscribed to; each kind of deed but two."""


@pytest.fixture(scope="module")
def site(may_kill_nodes: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with Site(tmp_path_factory.mktemp("money")) as running:
        yield running


@pytest.mark.slice
@pytest.mark.timeout(600)
def test_money_moves_between_two_databases_under_kills(site: Site) -> None:
    game = draw(SLICE, SENDS)
    found = Run(game, site).play()
    assert not found.broken
    assert found.transfers == found.booked >= SENDS * len(TELLERS) - found.attempts["send unknown"]
    assert sum(found.deeds.values()) + found.missed == sum(map(len, game.stops.values()))
    assert sum(found.deeds.values()) > 0 and found.runs >= 2 * len(APPLICATIONS)


# -- each check


def good() -> Books:
    """A transfer each way, a send and a booking that were rolled back, and one of each that no teller was told of."""
    one = Book(BALANCE * ACCOUNTS - 2, [Entry("A1-0", "A1-0", 5)], [Entry("B1-0", "A1-1", 3)])
    other = Book(BALANCE * ACCOUNTS + 2, [Entry("B1-0", "B1-0", 3)], [Entry("A1-0", "B1-1", 5)])
    attempts = [
        *(Attempt("A1-0", SEND, COMMITTED), Attempt("A1-1", BOOK, COMMITTED), Attempt("A1-2", SEND, ROLLED_BACK)),
        *(Attempt("B1-0", SEND, KILLED), Attempt("B1-1", BOOK, COMMITTED), Attempt("B1-2", BOOK, KILLED)),
        *(Attempt("B1-3", BOOK, ROLLED_BACK), Attempt("B1-4", BOOK, case.NOTHING)),
    ]
    return Books({"A": one, "B": other}, attempts, [], [], [], [], [], [])


def change(which: str, name: str) -> Callable[[Books], None]:
    return lambda books: getattr(books, which).append(name)


WRONG: dict[str, tuple[set[str], Callable[[Books], None]]] = {
    "money comes from nowhere": ({"the sum"}, lambda books: setattr(books.by["A"], "balance", 2000)),
    "a message is lost": ({"once", "told committed"}, lambda books: books.by["B"].booked.clear()),
    "a message is booked twice": ({"once"}, lambda books: books.by["B"].booked.append(Entry("A1-0", "B1-2", 5))),
    "another amount is booked": ({"once"}, lambda books: books.by["B"].booked.__setitem__(0, Entry("A1-0", "B1-1", 6))),
    "a booking of nothing": ({"once"}, lambda books: books.by["A"].booked.append(Entry("B1-9", "B1-2", 1))),
    "booked, and in a queue again": (
        {"once", "nothing waits", "the sum"},
        lambda books: books.waiting.append(Entry("A1-0", "", 5)),
    ),
    "a committed send is not there": (
        {"told committed"},
        lambda books: books.attempts.append(Attempt("A1-7", SEND, COMMITTED)),
    ),
    "a committed booking is not there": (
        {"told committed"},
        lambda books: books.attempts.append(Attempt("B1-7", BOOK, COMMITTED)),
    ),
    "a send that was rolled back is there": (
        {"told rolled back"},
        lambda books: books.attempts.__setitem__(0, Attempt("A1-0", SEND, ROLLED_BACK)),
    ),
    "a booking of no message is there": (
        {"told rolled back"},
        lambda books: books.attempts.__setitem__(4, Attempt("B1-1", BOOK, case.NOTHING)),
    ),
    "a prepared transaction is left": ({"nothing is prepared"}, change("prepared", "x")),
    "a branch is left": ({"no branch"}, change("branches", "x")),
    "a process ends badly": ({"nothing unforeseen"}, change("unforeseen", "A1 ended with 1")),
    "a process does not end": ({"goes on"}, change("stuck", "A1 comes to no end")),
    "a recovery run is not done": ({"settled"}, change("unsettled", "A: waits")),
    "a decision waits": ({"settled"}, lambda books: books.by["A"].undecided.append("x")),
}


def test_good_books_are_good() -> None:
    assert judge(good()) == {}
    on_its_way = good()
    on_its_way.by["B"].booked.clear()
    on_its_way.by["B"].balance -= 5
    on_its_way.attempts = []
    on_its_way.waiting.append(Entry("A1-0", "", 5))
    assert set(judge(on_its_way)) == {"nothing waits"}


@pytest.mark.parametrize("what", WRONG)
def test_a_check_finds_what_is_against_it(what: str) -> None:
    checks, wrong = WRONG[what]
    books = good()
    wrong(books)
    assert set(judge(books)) == checks


def test_every_check_can_fail() -> None:
    assert {check for checks, _ in WRONG.values() for check in checks} == set(CHECKS)


def test_what_is_left_behind_is_read_from_databases_and_broker(site: Site) -> None:
    """A prepared transaction, a branch, a message, and a commit that is not carried out."""
    site.heal()
    game = draw(0)._replace(seed=1_000_000, ways=dict.fromkeys(APPLICATIONS, LOG))
    with Ground(site, game, None) as ground:
        assert judge(ground.books([], [], [])) == {}
        xid = branch_xid("left.0.behind", "database")
        database, broker = Postgresql(ground.dsn["B"]), Broker(*map(parameters, site.cluster.urls))
        for resource in (database, broker):
            resource.begin(xid)
        database.connection.execute("UPDATE accounts SET balance = balance - 1 WHERE number = 0")
        broker.channel.basic_publish("", ground.queue_to["A"], b"{}", PERSISTENT)
        assert database.prepare(xid) and broker.prepare(xid)
        body = json.dumps({"transfer": "A1-0", "amount": 7}).encode()
        with pika.BlockingConnection(parameters(site.cluster.urls[0])) as connection:
            connection.channel().basic_publish("", ground.queue_to["B"], body, PERSISTENT)
        with psycopg.connect(ground.direct["A"]) as direct:
            create_table(direct)
            direct.execute(find_table(direct).in_sql("INSERT INTO {table} VALUES ('left', true)"))
        found = judge(ground.books([], [], []))
        for resource in (database, broker):
            resource.settle(xid, False, "")
            resource.close()
        assert set(found) == {"the sum", "nothing waits", "nothing is prepared", "no branch", "settled"}


def test_a_journal_that_was_cut_tells_what_was_told(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    lines = [{"name": "A1-0", "kind": SEND}, {"name": "A1-0", "told": COMMITTED}, {"name": "A1-1", "kind": BOOK}]
    journal.write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"name": "A1-1", "to')
    assert read_journals([journal]) == [Attempt("A1-0", SEND, COMMITTED), Attempt("A1-1", BOOK, KILLED)]


# -- rounds


def test_a_round_is_drawn_by_its_seed_alone() -> None:
    assert [draw(seed) for seed in range(50)] == [draw(seed) for seed in range(50)]
    assert len({str(draw(seed)._replace(seed=0, sends=0)) + str(draw(seed).stops) for seed in range(100)}) == 100


def test_200_rounds_have_everything() -> None:
    """Each deed in each way, each step of each kind of transaction, and every way to decide for both applications."""
    games = [draw(seed) for seed in range(200)]
    stops = [(game.ways[teller[0]], stop) for game in games for teller, each in game.stops.items() for stop in each]
    assert {(stop.deed, stop.how) for _, stop in stops} == {(deed, how) for deed in DEEDS for how in ways(deed)}
    assert {(way, stop.kind, stop.step) for way, stop in stops} == {
        (way, kind, step) for way in WAYS_TO_DECIDE for kind in (SEND, BOOK) for step in steps(way, kind)
    }
    for fact in ("layout", "ways", "takes", "roles"):
        values = {str(getattr(game, fact)) for game in games}
        assert len(values) == {"layout": 2, "ways": 4, "takes": 4, "roles": 2}[fact]
    assert all(STOPS[0] <= len(each) <= STOPS[1] for game in games for each in game.stops.values())
    assert all(game.roles["A"] != game.roles["B"] for game in games if game.layout == case.TOGETHER)


def test_no_recovery_run_waits_for_who_waits_for_it() -> None:
    """Who stands at that step has the log locked."""
    for game in map(draw, range(500)):
        for teller, stops in game.stops.items():
            held = [stop for stop in stops if game.ways[teller[0]] == LOG and stop.step == "decision written"]
            assert not [stop for stop in held if stop.deed == RECOVER and stop.how == AT]


def test_the_steps_are_those_of_the_product() -> None:
    every = {step for way in WAYS_TO_DECIDE for kind in (SEND, BOOK) for step in steps(way, kind)}
    ours = {"message taken", "message published", "message acknowledged", "account credited", *WORK_STEPS}
    assert set(STEPS) <= every <= set(STEPS) | ours


def test_rounds_are_summed_up() -> None:
    totals = Totals()
    game = Round(7, case.APART, {}, {}, {}, 1, 1, {})
    found = Found(transfers=3, missed=1, runs=4, in_doubt=2, broken={"once": ["x"]})
    found.deeds[RECOVER], found.attempts["send committed"] = 2, 3
    totals.add(game, found)
    totals.add(game._replace(seed=8), Found(transfers=2))
    told = totals.as_dict()
    assert (told["rounds"], told["transfers"], told["missed"], told["runs"], told["in_doubt"]) == (2, 5, 1, 4, 2)
    assert told["deeds"] == {RECOVER: 2} and told["broken"] == {7: {"once": ["x"]}}


# -- the command


def command(*options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "python_tests.suites.money", *options], capture_output=True, text=True, check=False
    )


def test_the_command_shows_rounds() -> None:
    shown = command("--show", "--rounds", "2", "--seed", "7")
    assert shown.returncode == 0 and f"{draw(7)}\n" in shown.stdout and str(draw(8)) in shown.stdout
    assert json.loads(command("--show", "--json", "--rounds", "1", "--seed", "7").stdout)["seed"] == 7


@pytest.mark.parametrize("wrong", [("--put-back", "nothing"), ("--rounds", "0"), ("--seed", "x"), ("--sends", "0")])
def test_the_command_refuses_what_cannot_be(wrong: tuple[str, str]) -> None:
    refused = command(*wrong)
    assert refused.returncode == 2 and ("nothing" if wrong[1] == "nothing" else wrong[0]) in refused.stderr


def test_the_page_names_deeds_checks_and_faults() -> None:
    page = PAGE.read_text()
    for deed, what in DEEDS.items():
        assert f"| {deed} | {what} |" in page
    for check, (what, _) in CHECKS.items():
        assert f"| {check} | {what} |" in page
    for fault, what in FAULTS.items():
        assert f"| `{fault}` | {what} |" in page
