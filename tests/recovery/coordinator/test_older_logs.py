"""An older copy of a log lacks decisions, and absence means abort: so it is recognised, and settles nothing."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from recovery.coordinator import decision_log
from recovery.coordinator.coordinated_branches import CoordinatedBranches
from recovery.coordinator.decision_log import DecisionLog, read_decisions
from recovery.coordinator.decisions import ABORT_KEPT, ENDED_KEPT, DecisionRefused
from recovery.coordinator.log_lines import VERSION, decode_lines, encode_lines, first_line
from recovery.coordinator.names import branch_xid, new_global_name, read_global_name
from recovery.coordinator.older_copy import NOT_ASKED, DecisionsAreOlder
from recovery.coordinator.recover import Report, recover, recover_with_each
from recovery.coordinator.resources import Participant, ResourceLost
from tests.recovery.coordinator.fakes import Killed, MemoryResource, World
from txobserver.outcomes import BranchOutcome
from txobserver.xid import MAX_PART, Xid

COMMITTED, ROLLED_BACK = BranchOutcome.COMMITTED, BranchOutcome.ROLLED_BACK
WHO = [Participant("database:1", "database", "ticket")]


class Site:
    """A database, a broker, a log, and older copies of that."""

    def __init__(self, directory: Path) -> None:
        self.world = World()
        self.database = MemoryResource(self.world, "database:1", fences=False)
        self.broker = MemoryResource(self.world, "broker:1", fences=True)
        self.resources = {"database": self.database, "broker": self.broker}
        self.path = directory / "log"
        self.copies: list[Path] = []

    def copy(self) -> Path:
        """The log as it is now."""
        self.copies.append(self.path.with_name(f"copy-{len(self.copies)}"))
        return Path(shutil.copy(self.path, self.copies[-1]))

    def transact(self, at: str = "", happens: Callable[[], object] = lambda: None) -> str:
        """A transaction; ``happens`` at this step, and the name is returned."""
        work = CoordinatedBranches(
            DecisionLog(self.path, reached=self._at(at, happens)), self.resources, 0.0, self._at(at, happens)
        )
        try:
            for part in self.resources:
                work.begin(part)
            work.commit()
        except Killed:
            self.world.revive()
        return work.name

    @staticmethod
    def _at(at: str, happens: Callable[[], object]) -> Callable[[str], None]:
        def reached(step: str) -> None:
            if step == at:
                happens()

        return reached

    def die(self, at: str) -> str:
        return self.transact(at, self.world.kill)

    def recover(self, path: Path, **resources: MemoryResource) -> Report:
        return recover(DecisionLog(path), dict(resources or self.resources), grace=0.0)

    def restored(self, path: Path) -> None:
        """In the place of the log, with what has been appended since gone."""
        shutil.copy(path, self.path)

    def fates(self) -> list[BranchOutcome]:
        return [fate for each in self.resources.values() for fate in each.ended.values()]


@pytest.fixture
def site(tmp_path: Path) -> Site:
    site = Site(tmp_path)
    DecisionLog(site.path).close()
    return site


def older(site: Site, path: Path) -> None:
    """This copy is refused, and changes nothing; and so is a coordinator's log that it has taken the place of."""
    before = [dict(each.branches) for each in site.resources.values()]
    for place in (path, site.path):
        newest = site.path.read_bytes()
        if place == site.path:
            site.restored(path)
        with pytest.raises(DecisionsAreOlder, match="Put the newest copy of the log in its place"):
            site.recover(place)
        site.path.write_bytes(newest)
    assert [dict(each.branches) for each in site.resources.values()] == before


@pytest.mark.parametrize("step", ["decision synced", "database committed"])
def test_an_older_copy_rolls_nothing_back(site: Site, step: str) -> None:
    """The log as it was made, and behind a transaction: the broker's branch was rolled back, with exit status 0."""
    site.copy()
    site.transact()
    site.copy()
    site.die(step)
    for path in site.copies:
        older(site, path)
    assert site.recover(site.path).settled
    assert site.fates() == [COMMITTED] * 4


def test_a_copy_that_was_made_while_the_transaction_committed(site: Site) -> None:
    """It has the intent: the database says that it has committed."""
    site.transact("broker prepared", site.copy)  # a backup job
    copied = site.copies[0]
    site.database.branches, site.broker.branches = {}, dict.fromkeys(site.broker.ended, BranchOutcome.PREPARED)
    site.broker.ended = {}
    with pytest.raises(DecisionsAreOlder, match="database:1 has committed branch"):
        site.recover(copied)
    assert site.recover(site.path).settled is True or site.broker.ended


def test_a_branch_that_committed_last_tells_it_of_the_first(site: Site) -> None:
    """A recovery run settles in the order in which it was told of resources."""
    copied = site.copy()
    site.die("decision synced")
    site.recover(site.path, broker=site.broker)
    assert [*site.broker.ended.values()] == [COMMITTED] and site.database.branches
    with pytest.raises(DecisionsAreOlder, match="broker:1 has committed branch"):
        site.recover(copied)
    assert site.recover(site.path).settled and site.fates() == [COMMITTED] * 2


def test_a_commit_that_was_told_and_reached_no_resource(site: Site) -> None:
    """Both branches are prepared, so to roll both back would halve nothing, and lose what was told."""
    copied = site.copy()

    def lose() -> None:
        def lost() -> None:
            raise ResourceLost("it is gone")

        site.world.at = dict.fromkeys(range(site.world.steps, site.world.steps + 8), lost)

    site.transact("decision synced", lose)
    site.world.at.clear()
    older(site, copied)
    assert site.recover(site.path).settled and site.fates() == [COMMITTED] * 2


def test_a_log_of_an_earlier_version_is_an_older_copy_as_well(site: Site) -> None:
    whose = DecisionLog(site.path).whose
    copied = site.path.with_name("old")
    copied.write_bytes(b"".join(encode_lines([{"log": whose, "version": 1}, {"abort": f"{whose}.1.a", "at": 1.0}])))
    site.die("database committed")
    older(site, copied)


@pytest.mark.parametrize("step", range(12))
def test_every_crash_is_settled_with_the_right_log(site: Site, step: int) -> None:
    """In front of the intent, between it and the last prepare, behind that: no crash makes a log look older."""
    site.world.at[step] = site.world.kill
    name = site.transact()
    assert not site.world.at, "it came so far"
    for each in site.resources.values():
        each.lose_session()
    assert site.recover(site.path).settled
    assert len(set(site.fates())) <= 1 and not site.database.branches and not site.broker.branches
    assert site.recover(site.path).rows == [] and read_global_name(name) is not None


def test_the_intent_is_durable_before_the_last_branch_prepares(site: Site) -> None:
    """And only the last one waits for it."""
    seen: list[tuple[bool, str]] = []

    def watch(resource: MemoryResource) -> None:
        prepare = resource.prepare

        def prepared(xid: object) -> Participant | None:
            contents = DecisionLog(site.path)._file.contents
            seen.append((bool(contents.intents), resource.name))
            return prepare(xid)  # type: ignore[arg-type]

        resource.prepare = prepared  # type: ignore[method-assign]

    for each in site.resources.values():
        watch(each)
    site.transact()
    assert seen == [(False, "database:1"), (True, "broker:1")]
    assert not DecisionLog(site.path)._file.contents.intents, "it is decided"


def test_another_process_sees_intents_and_resources(site: Site) -> None:
    here, there = DecisionLog(site.path), DecisionLog(site.path)
    name = str(here.fenced_name("broker"))
    here.intend(name, WHO, "broker:1")
    assert there.intent(name) == tuple(WHO) and there.resources() == ("database:1", "broker:1")
    assert not there.decide(name, False) and here.intent(name) is None
    here.intend(name, WHO, "broker:1")
    assert there.intent(name) is None, "it was aborted meanwhile"


def test_a_smaller_log_has_the_intents_and_the_resources(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    log = DecisionLog(site.path, compact_bytes=1)
    kept, gone = str(log.fenced_name("broker")), str(log.fenced_name("broker"))
    log.intend(kept, WHO, "broker:1")
    log.intend(gone, WHO, "broker:2")
    log.drop_resource("broker:2")
    for _ in range(40):
        name = str(log.new_name())
        log.decide(name, True, WHO)
        log.finish(name)
    log.decide(gone, False)
    now = decision_log.time.time() + 2 * 3600
    monkeypatch.setattr(decision_log.time, "time", lambda: now)
    size = site.path.stat().st_size
    for _ in range(40):
        name = str(log.new_name())
        log.decide(name, True, WHO)
        log.finish(name)
    assert site.path.stat().st_size < size
    smaller = DecisionLog(site.path)
    assert smaller.intent(kept) == tuple(WHO) and smaller.intent(gone) is None
    assert smaller.resources() == ("database:1", "broker:1")
    assert smaller._file.contents.version == VERSION


def test_what_the_log_may_have_forgotten_is_not_taken_for_an_older_copy(site: Site) -> None:
    """An intent is kept as long as an abort, behind which nothing can be committed any more."""
    site.die("broker prepared")
    log = DecisionLog(site.path)
    [name] = log._file.contents.intents
    lines = log._file.contents.lines(decision_log.time.time() + ABORT_KEPT + 10)
    site.path.write_bytes(b"".join(encode_lines(lines)))
    assert DecisionLog(site.path).may_have_forgotten(name) and "intent" not in site.path.read_text()
    assert site.recover(site.path).settled and set(site.fates()) == {ROLLED_BACK}


def test_a_log_of_an_earlier_version_is_brought_forward(site: Site) -> None:
    """What it decided stands; and an earlier version, which gives no intents, decides in it no more."""
    whose = "0123456789abcdef"
    name = str(new_global_name(whose))
    lines = [{"log": whose, "version": 1}, {"commit": name, "at": 1.0, "participants": WHO}]
    site.path.write_bytes(b"".join(encode_lines(lines)))
    assert [*DecisionLog(site.path).unfinished()] == [name]
    brought = [line for line, _, _ in decode_lines(site.path.read_bytes(), 0, site.path, 0)]
    assert {**brought[-1], "synced": 0} == {**first_line(whose), "synced": 0} and len(brought) == 3
    DecisionLog(site.path)
    assert len([*decode_lines(site.path.read_bytes(), 0, site.path, 0)]) == 3, "once"
    assert read_decisions(site.path)[:1] == (whose,)


@pytest.mark.parametrize("part", ["database", "broker"])
def test_a_branch_that_ended_while_the_run_looked_is_no_sign(site: Site, part: str) -> None:
    """Its transaction has ended since the branch was found, and the log has forgotten that: seed 82 of the model."""
    name = site.transact()
    contents = DecisionLog(site.path)._file.contents
    site.path.write_bytes(b"".join(encode_lines(contents.lines(decision_log.time.time() + ENDED_KEPT + 10))))
    assert name not in site.path.read_text()
    found = branch_xid(name, part)
    site.resources[part].in_doubt = lambda: [found]  # type: ignore[method-assign]
    assert site.recover(site.path).settled and site.fates() == [COMMITTED] * 2


def test_branches_of_an_earlier_version_are_settled_as_before(site: Site) -> None:
    """Their names tell of no intent."""
    log = DecisionLog(site.path)
    xid = branch_xid(str(log.new_name()), "broker")
    site.broker.branches[xid] = BranchOutcome.PREPARED
    assert site.recover(site.path).settled and site.broker.ended == {xid: ROLLED_BACK}


def test_an_undecided_transaction_waits_until_all_that_take_part_are_asked(site: Site) -> None:
    """One of them may have committed it, as far as this log knows."""
    site.die("broker prepared")
    report = site.recover(site.path, broker=site.broker)
    assert [row.why for row in report.rows] == [f"database:1 {NOT_ASKED}"] and not report.settled
    assert report.not_asked == ["database:1"] and not report.is_complete()
    assert site.recover(site.path).settled and set(site.fates()) == {ROLLED_BACK}


def test_an_undecided_transaction_waits_for_a_resource_that_is_lost_before_it_says_what_it_knows(site: Site) -> None:
    """It has listed what is in doubt there, and its branch is not among that: it may have been committed."""
    copied = site.path.with_name("copy")
    site.transact("broker prepared", lambda: shutil.copy(site.path, copied))
    [xid], site.broker.ended = site.broker.ended, {}
    site.broker.branches[xid] = BranchOutcome.PREPARED

    def lost(xid: Xid, ticket: str) -> BranchOutcome:
        raise ResourceLost("it is gone")

    site.database.fate = lost  # type: ignore[method-assign]
    report = site.recover(copied)
    assert [row.why for row in report.rows] == [f"database:1 {NOT_ASKED} (it is gone)"] and not report.settled
    assert site.broker.branches == {xid: BranchOutcome.PREPARED}


@pytest.mark.parametrize(("last", "told"), [("b" * 21, "b" * 21), ("b" * 22, ""), ("b.c", ""), ("", "")])
def test_a_name_tells_the_last_branch_where_there_is_room_for_it(site: Site, last: str, told: str) -> None:
    """Else its transaction could not begin, or its name could not be read."""
    name = DecisionLog(site.path).fenced_name(last)
    assert name.last == told and read_global_name(str(name)) == name
    assert branch_xid(str(name), "b" * MAX_PART).gtrid == str(name).encode()


def test_a_run_says_what_it_asked_and_what_it_did_not(site: Site) -> None:
    site.transact()
    whole = site.recover(site.path)
    assert whole.asked == {"database": "database:1", "broker": "broker:1"} and whole.is_complete()
    part = site.recover(site.path, broker=site.broker)
    assert part.settled and part.not_asked == ["database:1"] and not part.is_complete()
    wrong = MemoryResource(site.world, "database:2", fences=False)
    assert site.recover(site.path, broker=site.broker, database=wrong).not_asked == ["database:1"]
    assert DecisionLog(site.path).drop_resource("database:1") and not DecisionLog(site.path).drop_resource("database:1")
    assert site.recover(site.path, broker=site.broker).is_complete()


def test_a_broker_that_the_log_calls_as_earlier_versions_did_has_been_asked(site: Site) -> None:
    """Without the identity of its cluster; nothing else would ever end the report of it."""
    log = DecisionLog(site.path)
    log.intend(str(log.fenced_name("database")), [Participant("amqp:c", "broker", "")], "database:1")
    site.broker.name = f"amqp:c/{'0' * 32}"
    report = site.recover(site.path)
    assert report.not_asked == [] and report.is_complete()
    site.broker.name = f"amqp:d/{'0' * 32}"
    assert site.recover(site.path).not_asked == ["amqp:c"]


def test_branches_that_hang_on_other_decisions_are_told(site: Site) -> None:
    """So a wrong log or table is not taken for the right one. Other programs' count where all is asked for."""
    site.die("broker prepared")
    other = site.path.with_name("another")
    report = recover(DecisionLog(other), dict(site.resources), grace=0.0)
    assert report.settled and not report.rows and not report.is_complete()
    assert set(report.others.values()) == {DecisionLog(site.path).whose} and len(report.others) == 2
    assert recover(DecisionLog(other), dict(site.resources)).is_complete(), "it began a moment ago"
    both = {str(path): lambda path=path: DecisionLog(path) for path in (other, site.path)}
    assert recover_with_each(both, dict(site.resources), grace=0.0).is_complete()
    site.broker.branches[branch_xid("theirs", "x")] = BranchOutcome.PREPARED
    report = site.recover(site.path)
    assert report.is_complete() and not report.is_complete(everything=True)


def test_an_older_copy_is_reported_where_several_are_asked(site: Site) -> None:
    copied = site.copy()
    site.die("database committed")
    report = recover_with_each({"here": lambda: DecisionLog(copied)}, dict(site.resources), grace=0.0)
    assert [*report.older] == ["here"] and not report.settled and not report.unreachable


def test_a_log_that_cannot_be_written_prepares_nothing_last(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(self: DecisionLog, *words: object) -> None:
        raise DecisionRefused("no space")

    monkeypatch.setattr(DecisionLog, "intend", refused)
    with pytest.raises(Exception, match="no space"):
        site.transact()
    assert set(site.fates()) == {ROLLED_BACK} and not site.broker.branches
