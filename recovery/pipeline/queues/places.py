"""Offsets of the source: which messages a micro-batch has taken, by their places.

A place names one message of a queue for good (``docs/decisions/offsets-by-position.md``). Messages do not come in the
order of their places for ever: one that another client had taken can come back later, behind others. So an offset is
not "everything up to here". It names the messages of its batch, and those of earlier batches of which it was not yet
known that they had left the queue. What stands in neither was never in a batch, whatever its place.

*For good* is as long as the cluster's history goes on. When an operator accepts a loss of data, the stream goes on from
where it was cut, and places behind that are given to other messages, which no query has read yet. So an offset also
says in which history its places are: of which cluster, behind which loss, and in which generation it was made. The last
is what counts. Where the coordination record was lost, it is not known which losses had been accepted, but they were
none behind a generation that the broker tells (``an_accepted_loss_is_forgotten_with_the_record``).

What has left the queue is known from a record at the broker (``intake``), which names places, too.
"""

from __future__ import annotations

import json
import re
import zlib
from array import array
from base64 import b64decode, b64encode
from collections.abc import Collection, Iterable, Mapping
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

from recovery.pipeline.errors import PipelineError


class Offset(NamedTuple):
    """``taken``: the places of a batch's messages. ``earlier``: of batches before, maybe in the queue still.

    ``history``: where these are places; empty in an offset that names none, or was made before that was noted.
    """

    queue: str
    taken: frozenset[int] = frozenset()
    earlier: frozenset[int] = frozenset()
    history: str = ""

    @property
    def done(self) -> frozenset[int]:
        """What is not to be taken again once the batch is committed."""
        return self.taken | self.earlier

    def as_json(self) -> dict[str, Any]:
        """As Spark keeps it in its checkpoint. ``count`` is for people."""
        return {
            "queue": self.queue,
            "count": len(self.taken),
            "taken": packed(self.taken),
            "earlier": packed(self.earlier),
            "history": self.history,
        }


def offset_of(kept: Mapping[str, Any]) -> Offset:
    """What ``as_json`` made."""
    return Offset(kept["queue"], unpacked(kept["taken"]), unpacked(kept["earlier"]), kept.get("history", ""))


def history_of(told: Mapping[str, Any]) -> str:
    """Of the broker that tells these server properties: its cluster, the last accepted loss, its generation."""
    cluster, loss = told.get("cluster_id") or told.get("cluster_name", ""), told.get("loss_accepted", 0)
    return f"{cluster}/{loss}@{told.get('generation', loss)}"


_HISTORY = re.compile(r"(?P<cluster>.*)/(?P<loss>\d+)(?:@(?P<generation>\d+))?", re.DOTALL)
"""Without a generation, of an earlier version: it was not made before the loss that it knows."""


def goes_on(since: str, now: str) -> bool:
    """Whether places that were noted in the first history name the same messages in the second, which came later.

    A loss that is accepted for a generation takes something from earlier ones. Empty fits to any.
    """
    if not since or not now:
        return True
    before, after = _HISTORY.fullmatch(since), _HISTORY.fullmatch(now)
    if before is None or after is None or before["cluster"] != after["cluster"]:
        return False
    made = int(before["generation"] or before["loss"])
    return int(after["loss"]) <= made <= int(after["generation"] or after["loss"])


def settled_record(queue: str, places: Collection[int]) -> bytes:
    """The record of what has been settled of a queue. ``queue`` and ``count`` are for people."""
    return json.dumps({"queue": queue, "count": len(places), "settled": packed(places)}).encode()


def settled_by(body: bytes) -> frozenset[int]:
    """The places that a record names; none of an empty one. Raises PipelineError for anything else."""
    if not body:
        return frozenset()
    try:
        return unpacked(json.loads(body)["settled"])
    except (ValueError, KeyError, TypeError, zlib.error) as error:
        raise PipelineError(f"what stands in the place of a source's record is none: {error!r}") from error


def packed(places: Iterable[int]) -> str:
    """Places as text: the steps from one to the next, which are much alike, compressed."""
    steps = array("q", (after - before for before, after in pairwise([0, *sorted(places)])))
    return b64encode(zlib.compress(steps.tobytes(), 6)).decode() if steps else ""


def unpacked(text: str) -> frozenset[int]:
    """What ``packed`` made."""
    steps = array("q", zlib.decompress(b64decode(text)) if text else b"")
    return frozenset(accumulate(steps))
