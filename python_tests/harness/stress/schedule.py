"""Which fault comes when: drawn by lot from a seed, or read from a file that says it for each round."""

from __future__ import annotations

import random
import tomllib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from python_tests.harness.stress.site import ANY, BACKUP, PRIMARY


class ScheduleError(Exception):
    """The schedule cannot be used; one sentence says why."""


@dataclass(frozen=True)
class Step:
    """A fault of ``kind`` at ``at`` seconds into the round, healed ``seconds`` later."""

    at: float
    kind: str
    target: str
    seconds: float


class RandomSchedule:
    """Rounds by lot. Every kind comes before any comes again; the same seed gives the same rounds.

    In every third round a second fault begins while the first one lasts, unless either of them hits all nodes.
    """

    def __init__(self, seed: int, kinds: Sequence[str], cluster_wide: frozenset[str], seconds: float) -> None:
        self._random = random.Random(seed)
        self._kinds = list(kinds)
        self._cluster_wide = cluster_wide
        self._seconds = seconds
        self._bag: list[str] = []

    def round(self) -> list[Step]:
        """The steps of the next round, in the order of their times."""
        rng, seconds = self._random, self._seconds
        first = Step(seconds * rng.uniform(0.15, 0.3), self._draw(), self._target(), seconds * rng.uniform(0.1, 0.4))
        if first.kind in self._cluster_wide or rng.random() > 1 / 3:
            return [first]
        kind = rng.choice(self._kinds)
        if kind == first.kind or kind in self._cluster_wide:
            return [first]
        at = first.at + first.seconds * rng.random()
        return [first, Step(at, kind, self._target(), seconds * rng.uniform(0.1, 0.3))]

    def _draw(self) -> str:
        if not self._bag:
            self._bag = self._random.sample(self._kinds, len(self._kinds))
        return self._bag.pop()

    def _target(self) -> str:
        return self._random.choice((PRIMARY, PRIMARY, BACKUP, ANY))


class _Row(BaseModel):
    model_config = ConfigDict(extra="forbid")

    at: float = Field(ge=0)
    fault: str
    target: str = ANY
    seconds: float = Field(5.0, ge=0, alias="for")


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid")

    step: list[_Row] = Field(min_length=1)


class FixedSchedule:
    """The same steps in every round."""

    def __init__(self, steps: Sequence[Step]) -> None:
        self._steps = sorted(steps, key=lambda step: step.at)

    def round(self) -> list[Step]:
        """The steps of the next round, in the order of their times."""
        return list(self._steps)

    @property
    def kinds(self) -> list[str]:
        """The kinds of faults in it."""
        return sorted({step.kind for step in self._steps})


def read_schedule(path: Path, kinds: Sequence[str], names: Sequence[str]) -> FixedSchedule:
    """A schedule from a TOML file of tables ``[[step]]`` with ``at``, ``fault``, ``target`` and ``for``.

    ``kinds`` and ``names`` are the faults and nodes that there are. Raises ScheduleError.
    """
    try:
        rows = _File.model_validate(tomllib.loads(path.read_text())).step
    except OSError as error:
        raise ScheduleError(f"cannot read {path}: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ScheduleError(f"{path} is not valid TOML: {error}") from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise ScheduleError(f"{path}: {where}: {first['msg']}") from error
    targets = (PRIMARY, BACKUP, ANY, *names)
    for row in rows:
        if row.fault not in kinds:
            raise ScheduleError(f"{path}: there is no fault {row.fault!r}; there are {', '.join(kinds)}")
        if row.target not in targets:
            raise ScheduleError(f"{path}: there is no target {row.target!r}; there are {', '.join(targets)}")
    return FixedSchedule([Step(row.at, row.fault, row.target, row.seconds) for row in rows])
