"""Faults of steps with parts: something of one stays that was not carried out, or its queues have others' numbers."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from ha.primary import client_ledger
from tests.simulation.seeded.planting import replace, seeded
from txobserver.batch import parts_of
from txobserver.configuration import Configured
from txobserver.definitions import Trial
from txobserver.refusal import Refusal
from txobserver.state.contents import Contents


def _tried(contents: Contents, step: Any) -> Trial:
    """What its parts come to, up to the one that cannot be."""
    trial = Trial(contents.configuration, contents.access)
    trial.carry_out(parts_of(step))
    return trial


def _declare(contents: Contents, trial: Trial) -> None:
    """Whatever it has declared is there."""
    contents.configuration = trial.configuration
    for number in contents.configuration.numbers() - contents.queues.numbers():
        contents.queues.add(number)


@seeded("P7", users=True)
def the_parts_before_the_one_that_cannot_be_stay(stack: ExitStack) -> None:
    """Part after part, as commands would be carried out: the operator is told that nothing was done."""

    def make(original: Any) -> Any:
        def load(self: Contents, step: Any) -> Any:
            trial = _tried(self, step)
            done = original(self, step)
            if done.refusal is not None:
                self.access.users, self.access.rules = trial.users, trial.rules
            return done

        return load

    replace(stack, Contents, "_load", make)


@seeded("P7", users=True, first=10)
def queues_of_a_refused_step_are_declared(stack: ExitStack) -> None:
    """Users and rules are taken back, and what was declared is not."""

    def make(original: Any) -> Any:
        def load(self: Contents, step: Any) -> Any:
            trial = _tried(self, step)
            done = original(self, step)
            if done.refusal is not None:
                _declare(self, trial)
            return done

        return load

    replace(stack, Contents, "_load", make)


@seeded("P7", "P5", users=True, first=10)
def queues_are_numbered_without_taking_the_numbers(stack: ExitStack) -> None:
    """The queues of a file get the numbers of steps before it, which other queues may have."""
    replace(stack, client_ledger, "numbers_of", lambda original: lambda step: 0)


@seeded("P7", users=True)
def a_step_with_parts_is_answered_as_one_without(stack: ExitStack) -> None:
    """What it came to is kept in the history, and the operator is told that it was carried out."""

    def make(original: Any) -> Any:
        def load(self: Contents, step: Any) -> Any:
            return original(self, step)._replace(refusal=None)

        return load

    replace(stack, Contents, "_load", make)


@seeded("P7", first=74, users=True)
def a_queue_that_is_there_counts_as_the_one_of_the_file(stack: ExitStack) -> None:
    """By its name, whatever it was declared with."""

    def make(original: Any) -> Any:
        def refusal_of(self: Trial, part: Any) -> Any:
            refusal = original(self, part)
            return None if refusal == Refusal.EXISTS else refusal

        return refusal_of

    replace(stack, Trial, "_refusal_of", make)


@seeded("P7", users=True)
def a_backup_judges_parts_by_what_the_primary_has(stack: ExitStack) -> None:
    """Who is behind carries it out without looking, since the primary has looked."""

    def make(original: Any) -> Any:
        judged: set[int] = set()

        def load(self: Contents, step: Any) -> Any:
            if step.config_id not in judged:
                judged.add(step.config_id)
                return original(self, step)
            trial = Trial(self.configuration, self.access)
            for part in parts_of(step):
                trial.failed = None
                trial.carry_out([part])
            self.access.loaded(step, trial.users, trial.rules, None, ("", ""))
            _declare(self, trial)
            return Configured(parts=tuple(parts_of(step)))

        return load

    replace(stack, Contents, "_load", make)
