"""Steps of configuration that were not carried out where they were applied, until that is answered."""

from __future__ import annotations

from functools import partial

from txobserver.configuration import Refusal
from txobserver.ports.ledger import Done


class Refusals:
    """The primary answers what the stream decided, not what was so when the step was asked for."""

    def __init__(self) -> None:
        self._refused: dict[int, Refusal] = {}

    def applied(self, config_id: int, refusal: Refusal | None) -> None:
        """A step has been applied."""
        if refusal is not None:
            self._refused[config_id] = refusal

    def answer(self, config_id: int, done: Done) -> Done:
        """What answers this step once it has been applied."""
        return partial(self._answer, config_id, done)

    def _answer(self, config_id: int, done: Done, outcome: str | None) -> None:
        done(outcome or self._refused.pop(config_id, None))
