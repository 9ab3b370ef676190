"""What a run has come to: the verdict on the clients' record, what the faults hit, what the stores say."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from python_tests.harness.judge import Verdict
from python_tests.harness.stress.timeline import Timeline

HELD, BROKEN, BAD_INPUT, NOT_PROVEN = 0, 1, 2, 3
"""Exit statuses"""


@dataclass
class Injection:
    """A fault as it happened. Times are monotonic seconds."""

    round: int
    kind: str
    target: str
    role: str
    """What the target was: primary, backup, or empty"""
    done: str
    """In words"""
    began: float
    in_flight: int
    """Transactions that had published and were not answered"""
    committing: int
    """Of these: those whose commit was out"""
    healed: float = 0.0
    hit: bool = False
    next_ok: float | None = None
    """Seconds from its beginning to the first ok answer to a commit that was sent after it"""
    pause: float | None = None
    """Seconds of the longest time without any ok answer that began before it was healed, and after it had begun"""
    alone: bool = True
    """No other fault lasted when it began"""
    in_force: float = 0.0
    """When it had its effect: after ``began``"""
    lifted: float = 0.0
    """When it began to be healed: before ``healed``"""
    leaseless: list[str] = field(default_factory=list)
    """Nodes that could renew no lease meanwhile"""
    cut_off: list[str] = field(default_factory=list)
    """Those of them whose clients could be served by no other node"""
    leases_judged: bool = False
    """It lasted longer than a lease, so that what those nodes did then was judged"""
    take_overs: int | None = None
    """New primaries while it lasted and soon after; None where the nodes were not asked"""


@dataclass
class Result:
    """Everything of a run."""

    verdict: Verdict = field(default_factory=Verdict)
    injections: list[Injection] = field(default_factory=list)
    stalled: list[str] = field(default_factory=list)
    """What did not come about: a broken P12"""
    disagreements: list[str] = field(default_factory=list)
    """From the nodes' stores: broken P6 and P7"""
    leases: list[str] = field(default_factory=list)
    """Primaries without a lease, and two at a time: broken P10"""
    stores: dict[str, int] = field(default_factory=dict)
    """How much of the stores was compared, in words and numbers; empty if they could not be read"""
    timeline: Timeline = field(default_factory=Timeline)
    rounds: int = 0
    seconds: float = 0.0
    """For which load ran"""
    min_rate: float = 0.0
    seed: int | None = None

    @property
    def rate(self) -> float:
        """Transactions committed per second."""
        return self.verdict.committed / self.seconds if self.seconds else 0.0

    @property
    def broken(self) -> list[str]:
        """Every broken promise, in words."""
        return [*self.verdict.broken, *self.disagreements, *self.leases, *(f"stalled: {what}" for what in self.stalled)]

    @property
    def not_proven(self) -> list[str]:
        """Why the run proves less than it should, in words."""
        found = []
        if self.rate < self.min_rate:
            found.append(f"{self.rate:.0f} transactions/s were committed, and {self.min_rate:g} are wanted")
        if self.rounds and not self.injections:
            found.append("there was no fault at all")
        for each in self.injections:
            where = f"round {each.round}, {each.done}"
            if not each.hit:
                found.append(f"{where}: the fault hit nothing")
            elif each.alone and not each.in_flight:
                found.append(f"{where}: no transaction was in flight")
        return found

    @property
    def status(self) -> int:
        """The exit status."""
        return BROKEN if self.broken else NOT_PROVEN if self.not_proven else HELD

    def as_dict(self) -> dict[str, Any]:
        """For ``--json``."""
        return {
            "status": self.status,
            "seed": self.seed,
            "rounds": self.rounds,
            "seconds": self.seconds,
            "rate": self.rate,
            "min_rate": self.min_rate,
            "broken": self.broken,
            "not_proven": self.not_proven,
            "injections": [asdict(each) for each in self.injections],
            "stores": self.stores,
            "verdict": self.verdict.as_dict(),
        }
