"""Holds what a race leads to against what the same requests lead to one after the other, in every possible order."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from python_tests.suites.amqp_programs.address import Address
from python_tests.suites.amqp_programs.compare import first_difference
from python_tests.suites.amqp_programs.judge import Fault, Judged
from python_tests.suites.amqp_programs.player import Answers, Player
from python_tests.suites.amqp_programs.races import Race, draw, orders

PLAYS = 4
"""Of each race: what arrives first differs."""


class Outcome(NamedTuple):
    """In which order it came about, in words, and what was answered and left."""

    order: str
    answers: list[Answers]


class RaceJudge:
    """``oracle`` plays the orders, ``player`` the races; both may be the same broker."""

    def __init__(self, oracle: Player, player: Player) -> None:
        self._oracle = oracle
        self._player = player

    def judge(self, seed: int) -> Judged:
        """One race, a few times."""
        race = draw(seed)
        product = self._oracle.product
        judged = Judged(len(race.program), sum(len(step.ops) for step in race.program), [product], [], [], [])
        known: list[Outcome] = []
        left = self._in_order(race)
        for turn in range(PLAYS):
            got = self._played(race, turn)
            if not self._explained(got, known, left):
                text = explain(race, turn, got, known, product)
                judged.faults.append(Fault(seed, f"{product}, one request after the other", text))
                break
        return judged

    def _in_order(self, race: Race) -> Iterator[Outcome]:
        for turns in orders(race):
            words = " ".join(f"{race.racers[number].connection}:{op.name}" for number, op in turns)
            yield Outcome(words, without_returns(self._oracle.in_order(race, turns)))

    def _explained(self, got: list[Answers], known: list[Outcome], left: Iterator[Outcome]) -> bool:
        product = self._oracle.product
        if any(first_difference(outcome.answers, got, product) is None for outcome in known):
            return True
        for outcome in left:
            known.append(outcome)
            if first_difference(outcome.answers, got, product) is None:
                return True
        return False

    def _played(self, race: Race, turn: int) -> list[Answers]:
        return without_returns(self._player.race(race, turn))

    @classmethod
    def between(cls, oracle: Address, txha: Address) -> RaceJudge:
        """RabbitMQ plays the orders, txha the races."""
        return cls(Player(oracle), Player(txha))

    def close(self) -> None:
        """Leave the brokers."""
        for player in {self._oracle, self._player}:
            player.close()


def without_returns(answers: list[Answers]) -> list[Answers]:
    """What is returned is left out: both brokers route a message when they take it in, and a queue may be gone when it
    gets there.
    """
    kept = [
        {name: [text for text in lines if not text.startswith("basic.return")] for name, lines in each.items()}
        for each in answers
    ]
    return [{name: lines for name, lines in each.items() if lines} for each in kept]


def explain(race: Race, turn: int, got: list[Answers], known: list[Outcome], product: str) -> str:
    """What came, and how each order differs from it."""
    lines = [str(race), f"came, in play {turn}:", *_shown(got)]
    for outcome in known:
        mismatch = first_difference(outcome.answers, got, product)
        if mismatch is not None:
            wanted = [f"    {text}" for text in mismatch.wanted if text not in mismatch.got]
            lines += [f"but in the order {outcome.order}:", *wanted]
    return "\n".join(lines)


def _shown(got: list[Answers]) -> list[str]:
    return [f"  {name}: {text}" for answers in got for name, texts in answers.items() for text in texts]
