"""The times of a configuration, and what all of its tables have in common."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from ha.membership.members import unreadable_host, wrong_name
from ha.settings import LEAST_BEATS


class Section(BaseModel):
    """A table: no unknown key, no number that is none, and no value in a message."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, hide_input_in_errors=True)


def _unless(wrong_in: Callable[[str], str | None]) -> AfterValidator:
    """Refuses what this rule says something against."""

    def check(text: str) -> str:
        if (wrong := wrong_in(text)) is not None:
            raise ValueError(wrong)
        return text

    return AfterValidator(check)


HostName = Annotated[str, Field(min_length=1), _unless(unreadable_host)]
"""Of a host, or an address: something that can be looked for"""
NodeName = Annotated[str, Field(min_length=1), _unless(wrong_name)]
"""As ``txha member`` takes it"""
SHORTEST = 0.1
"""Seconds. A node looks at its clock every 0.02 s (``shell.TICK``), and later when it is busy. What is to be shorter
than a few of these steps cannot be kept: every backup would be silent, or no candidate would see a lease end."""
HUNG_PART = 0.75
"""Of ``lease_ttl``: how long a loop may have completed no turn before it is taken for hung, by default."""
SHORTEST_HANG = 1.5
"""Times ``renew_every``: the coordination process makes its first renewal a quarter behind the one that is due."""
MOST_SECONDS = 1e9
"""More than thirty years: what is longer is a mistake of the unit."""
MOST_PATIENCE = 3600.0
"""Seconds, of a lease and of what is waited for: for longer no cluster can be without a primary"""

MOST_DRAIN = 60.0
"""Seconds that a primary that hands over may be told to wait for its clients' answers: nothing is begun meanwhile."""


LEASE_SECONDS, LEASE_SECONDS_ETCD = 1.0, 4.0
"""Seconds, ``lease_ttl`` by default. A file takes a renewal at once, and etcd not before it has elected another leader:
up to 2 seconds after the end of one by etcd's defaults, and as long again where votes are split."""
RENEW_SECONDS = 0.2
"""``renew_every`` by default, and with etcd at least"""
RENEWALS_ETCD = 8
"""In a lease, with etcd: each is a revision that etcd keeps until it is compacted"""
_ETCD = "etcd://"


def default_lease(coordination: object) -> float:
    """``lease_ttl`` by default, in seconds, of a node with this coordination store or address of one."""
    return LEASE_SECONDS_ETCD if str(coordination).startswith(_ETCD) else LEASE_SECONDS


def with_default_lease(values: Any) -> Any:
    """The values of a whole configuration, with the lease that its coordination store takes where they name none."""
    if not isinstance(values, dict) or not str(values.get("coordination")).startswith(_ETCD):
        return values
    timing = values.get("timing", {})
    if not isinstance(timing, dict):
        return values
    lease = timing.get("lease_ttl", LEASE_SECONDS_ETCD)
    try:
        every = max(RENEW_SECONDS, float(lease) / RENEWALS_ETCD)
    except (TypeError, ValueError):  # what is wrong with it is said where it is looked at
        every = RENEW_SECONDS
    return {**values, "timing": {"lease_ttl": lease, "renew_every": every, **timing}}


class Timing(Section):
    """Seconds. Made directly, the lease is that of a file; ``with_default_lease`` knows of others."""

    lease_ttl: float = Field(
        default_factory=lambda: LEASE_SECONDS, gt=0, le=MOST_PATIENCE, description="`1.0`; with etcd `4.0`"
    )
    renew_every: float = Field(
        default_factory=lambda: RENEW_SECONDS,
        gt=0,
        le=MOST_PATIENCE,
        description="`0.2`; with etcd an eighth of `timing.lease_ttl`, at least `0.2`",
    )
    prepare_timeout: float = Field(3.0, gt=0, le=MOST_PATIENCE)
    backup_timeout: float = Field(5.0, gt=0, le=MOST_PATIENCE)
    link_down_grace: float = Field(0.2, ge=0, le=MOST_PATIENCE)
    beat_every: float = Field(0.2, gt=0, le=MOST_PATIENCE)
    link_deadline: float = Field(0.75, gt=0, le=MOST_PATIENCE)
    drain_seconds: float = Field(1.0, ge=0, le=MOST_DRAIN)
    call_retry: float = Field(1.0, gt=0, le=MOST_PATIENCE)
    ticket_timeout: float = Field(10.0, gt=0, le=MOST_PATIENCE)
    hung_after: float = Field(
        default_factory=lambda values: HUNG_PART * values.get("lease_ttl", 0),
        gt=0,
        description="three quarters of `timing.lease_ttl`",
    )

    def lease_before(self, coordination: object) -> float:
        """For how many seconds a node of an earlier version may wait with the same file: it knew one default only.

        0: as long as this one, since the file names the lease (or, with that default, could not be used).
        """
        may_be_default = self.lease_ttl == default_lease(coordination) and self.renew_every <= LEASE_SECONDS / 2
        return LEASE_SECONDS if may_be_default and self.lease_ttl > LEASE_SECONDS else 0.0

    @model_validator(mode="after")
    def _renew_in_time(self) -> Timing:
        for name in ("renew_every", "prepare_timeout", "backup_timeout", "call_retry", "beat_every"):
            if getattr(self, name) < SHORTEST:
                raise ValueError(
                    f"{name} must be at least {SHORTEST:g}: a node looks at its clock every 0.02 s, and less often "
                    "when it is busy"
                )
        if self.renew_every * 2 > self.lease_ttl:
            raise ValueError("renew_every must be at most half of lease_ttl")
        if self.link_deadline < round(LEAST_BEATS * self.beat_every, 6):  # 0.6 is three times 0.2
            raise ValueError(f"link_deadline must be at least {LEAST_BEATS} times beat_every")
        if not self.hung_after < self.lease_ttl:
            raise ValueError("hung_after must be less than lease_ttl")
        if self.hung_after < SHORTEST_HANG * self.renew_every:
            raise ValueError("hung_after must be at least one and a half times renew_every")
        if not self.call_retry < self.ticket_timeout:
            raise ValueError("ticket_timeout must be more than call_retry: a ticket that was lost is asked for again")
        return self
