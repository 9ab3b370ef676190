"""A round is played: tellers work, what their stops say is done, and in the end everything is mended and judged."""

from __future__ import annotations

import contextlib
import json
import os
import queue
import random
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from python_tests.harness.waiting import wait_until
from python_tests.suites.coordinator.crashes import AFTER, AT, LATER_SECONDS, LEFT
from python_tests.suites.coordinator.transfer import COMMITTED, ROLLED_BACK
from python_tests.suites.money import case as of
from python_tests.suites.money.books import ACCOUNTS, Books, read_journals
from python_tests.suites.money.case import APPLICATIONS, GET, SEND, TELLERS, Round, Stop
from python_tests.suites.money.judge import judge
from python_tests.suites.money.orders import Orders
from python_tests.suites.money.site import BRANCH_SECONDS, Ground, Recovered, Site

QUIET_SECONDS = 1.5
"""Without a word for so long, recovery runs are made: what is prepared keeps others from an account."""
LEFT_SECONDS = 10.0
"""Without progress for so long, what was left dead is mended: the transaction may wait for one that needs it."""
STUCK_SECONDS, STUCK_RUNS = 60.0, 3
"""So long without progress, with so many recovery runs that find nothing left, is too long."""
HOPELESS_SECONDS = 180.0
"""So long is, whatever recovery runs find."""
LAST_RUNS = 5
"""So often a recovery run that something is left of is made again in the end."""


@dataclass
class Found:
    """What came of a round. ``deeds`` and ``attempts`` by name; ``broken``: what was found, by check."""

    transfers: int = 0
    booked: int = 0
    attempts: Counter[str] = field(default_factory=Counter)
    deeds: Counter[str] = field(default_factory=Counter)
    missed: int = 0
    runs: int = 0
    in_doubt: int = 0
    last_runs: int = 0
    broken: dict[str, list[str]] = field(default_factory=dict)


class At(threading.Thread):
    """A teller's process, and the thread that reads its output: it goes to ``heard`` with the teller's name."""

    def __init__(self, name: str, command: list[str], errors: str, heard: queue.Queue[tuple[str, str]]) -> None:
        super().__init__(daemon=True)
        self.teller = name
        self._heard = heard
        with open(errors, "ab") as output:
            self.process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=output, text=True, bufsize=1
            )
        self.start()

    def run(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._heard.put((self.teller, line.strip()))
        self.process.wait()
        self._heard.put((self.teller, "gone"))

    def go(self) -> None:
        """On from where it stands, if it still does."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write("go\n")
            self.process.stdin.flush()
        except OSError:  # it was killed there
            return


class Run:
    """One round on a site where everything is well."""

    def __init__(self, game: Round, site: Site, fault: str | None = None) -> None:
        self._game = game
        self._site = site
        self._fault = fault
        self._ground = Ground(site, game, fault)
        self._by = random.Random(f"run {game.seed}")
        self._heard: queue.Queue[tuple[str, str]] = queue.Queue()
        self._stops = {name: list(stops) for name, stops in game.stops.items()}
        self._tellers: dict[str, At] = {}
        self._killed: set[str] = set()
        self._left: dict[str, list[Callable[[], object]]] = {}
        self._recoveries: list[threading.Thread] = []
        self._unforeseen: list[str] = []
        self._stuck: list[str] = []
        self._settled_runs = 0
        self._spoken = time.monotonic()
        self._found = Found()

    def play(self) -> Found:
        """From the beginning to the end."""
        with self._ground:
            try:
                for name in TELLERS:
                    self._start(name, self._game.sends)
                while self._tellers:
                    self._listen()
                self._mend()
                unsettled = self._settle()
                self._wait_for_messages()
                for each in APPLICATIONS:
                    self._drain(f"{each}0")
                unsettled += self._settle()
                self._judge(self._ground.books(unsettled, self._unforeseen, self._stuck))
            finally:
                for teller in self._tellers.values():
                    teller.process.kill()
                self._mend()
        return self._found

    # -- tellers

    def _start(self, name: str, sends: int) -> None:
        game, ground, application = self._game, self._ground, name[0]
        other = next(each for each in APPLICATIONS if each != application)
        log = ground.link(application) if name[1] == "2" else ground.log(application)
        orders = Orders(
            name=name,
            seed=game.seed,
            way=game.ways[application],
            takes=game.takes[application] if sends else GET,
            dsn=ground.dsn[application],
            log=str(log),
            compact=game.compact,
            urls=self._site.cluster.urls,
            queue_in=ground.queue_to[application],
            queue_out=ground.queue_to[other],
            journal=str(ground.journal(name)),
            turn=self._begun(name, "kind"),
            sends=max(0, sends - self._begun(name, "sent")),
            accounts=ACCOUNTS,
            stops=[(stop.turn, stop.kind, stop.step) for stop in self._stops.get(name, [])],
            fault=self._fault,
        )
        command = [sys.executable, "-m", "python_tests.suites.money.teller", json.dumps(orders._asdict())]
        self._tellers[name] = At(name, command, str(ground.errors(name)), self._heard)

    def _begun(self, name: str, what: str) -> int:
        """How many transactions a teller has begun; how many of them were transfers that were not rolled back."""
        path = self._ground.journal(name)
        attempts = read_journals([path]) if path.exists() else []
        if what == "kind":
            return len(attempts)
        return sum(each.kind == SEND and each.told == COMMITTED for each in attempts)

    def _listen(self) -> None:
        """To the next thing that a teller says; recovery runs where no teller says anything."""
        quiet = time.monotonic() - self._spoken
        if quiet > QUIET_SECONDS and not any(each.is_alive() for each in self._recoveries):
            self._recover_beside(lambda: None)
        if quiet > LEFT_SECONDS:
            self._mend_what_is_left(list(self._left))
        settled = self._settled_runs >= STUCK_RUNS
        if quiet > (STUCK_SECONDS if settled or self._unforeseen else HOPELESS_SECONDS) and not self._stuck:
            self._give_up()
        try:
            name, said = self._heard.get(timeout=QUIET_SECONDS)
        except queue.Empty:
            return
        if not said.endswith(ROLLED_BACK):
            self._spoken, self._settled_runs = time.monotonic(), 0
        if said.startswith("at "):
            self._do(name, self._stops[name].pop(0))
            return
        self._mend_what_is_left([name])
        if said == "gone":
            self._gone(name)

    def _mend_what_is_left(self, names: Iterable[str]) -> None:
        """Of what was done at these tellers' stops."""
        for name in names:
            for start in self._left.pop(name, []):
                start()

    def _give_up(self) -> None:
        """No teller gets on."""
        for name, teller in self._tellers.items():
            self._stuck.append(f"{name} comes to no end")
            teller.process.kill()

    def _gone(self, name: str) -> None:
        teller = self._tellers.pop(name)
        status = teller.process.returncode
        if name in self._killed:
            self._killed.discard(name)
            self._recover_beside(lambda: None)
            self._start(name, self._game.sends)
        elif status != 0 and not self._stuck:
            self._ended_badly(name, status)
        else:
            self._found.missed += len(self._stops[name])

    def _ended_badly(self, name: str, status: int) -> None:
        said = self._ground.errors(name).read_text()[-3000:]
        self._unforeseen.append(f"{name} ended with {status}: {said}")

    # -- deeds

    def _do(self, name: str, stop: Stop) -> None:
        self._found.deeds[stop.deed] += 1
        teller = self._tellers[name]
        if stop.deed == of.RECOVER:
            self._recover_beside(teller.go if stop.how == AT else lambda: None)
            if stop.how == AFTER:
                teller.go()
            return
        if stop.how == AFTER:
            teller.go()
            time.sleep(self._by.uniform(0, LATER_SECONDS))
        start = self._strike(name, stop)
        if stop.how == LEFT:
            self._left.setdefault(name, []).append(start)
        else:
            start()
        if stop.how != AFTER:
            teller.go()

    def _strike(self, name: str, stop: Stop) -> Callable[[], object]:
        """Do it; what makes it good again."""
        if stop.deed == of.KILL_TELLER:
            self._killed.add(name)
            self._tellers[name].process.send_signal(signal.SIGKILL)
            return lambda: None
        if stop.deed == of.KILL_POOLER:
            self._ground.pooler.kill()
            return self._ground.pooler.start_again
        if stop.deed in (of.KILL_DATABASE, of.STOP_DATABASE):
            server = self._ground.server[stop.whose]
            (server.kill if stop.deed == of.KILL_DATABASE else server.stop_at_once)()
            return server.start_again
        return self._site.kill_nodes(stop.deed)

    def _recover_beside(self, then: Callable[[], None]) -> None:
        """Recovery runs of both applications, at once or one after the other, while all tellers work on."""
        order = self._by.sample(APPLICATIONS, len(APPLICATIONS))
        at_once = self._by.random() < 0.5

        def run(each: str) -> None:
            self._count(self._ground.recover(each))

        def both() -> None:
            for each in order:
                other = threading.Thread(target=run, args=(each,), daemon=True)
                other.start()
                running.append(other)
                if not at_once:
                    other.join()
            for other in running:
                other.join()
            then()

        running: list[threading.Thread] = []

        self._recoveries.append(threading.Thread(target=both, daemon=True))
        self._recoveries[-1].start()

    def _count(self, recovered: Recovered) -> None:
        self._found.runs += 1
        self._found.in_doubt += recovered.branches
        self._settled_runs += recovered.status == 0
        if recovered.wrong:
            self._unforeseen.append(recovered.wrong)

    # -- the end

    def _mend(self) -> None:
        """Nothing is broken any more, and no teller is at work."""
        for each in self._recoveries:
            each.join()
        self._left.clear()
        self._ground.pooler.start_again()
        self._site.heal()

    def _settle(self) -> list[str]:
        """The last recovery runs; what they say if anything is left."""
        left: list[str] = []
        for _ in range(LAST_RUNS):
            left = []
            for each in APPLICATIONS:
                recovered = self._ground.recover(each)
                self._count(recovered)
                if recovered.status != 0:
                    left.append(f"{each}: {recovered.said}")
            self._found.last_runs += 1
            if not left:
                break
        return left

    def _wait_for_messages(self) -> None:
        """The broker has given back what it held for tellers that are gone; if it does not, the books will show it."""
        with contextlib.suppress(TimeoutError):
            wait_until(lambda: self._ground.missing() <= 0, 3 * BRANCH_SECONDS, "every message", every=0.1)

    def _drain(self, name: str) -> None:
        """Book what still waits for one application."""
        self._start(name, 0)
        process = self._tellers[name].process
        try:
            process.wait(STUCK_SECONDS)
        except subprocess.TimeoutExpired:
            os.kill(process.pid, signal.SIGKILL)
            self._stuck.append(f"{name} cannot book what waits")
        teller = self._tellers.pop(name)
        teller.join()
        if process.returncode not in (0, -signal.SIGKILL):
            self._ended_badly(name, process.returncode)

    def _judge(self, books: Books) -> None:
        found = self._found
        found.broken = judge(books)
        found.transfers = sum(len(book.sent) for book in books.by.values())
        found.booked = sum(len(book.booked) for book in books.by.values())
        for each in books.attempts:
            found.attempts[f"{each.kind} {each.told}"] += 1

