"""A middlebox ends each connection with one backup at the same point: what the others do meanwhile is judged.

That is the first frame of the stream to it, or its first acknowledgement. It asks to be attached and gets nowhere,
again and again, and each time soon enough to be taken for one that has only lost its connection for a moment.
"""

from __future__ import annotations

import random

from ha.membership.belonging import needed
from tests.simulation.book import OK
from tests.simulation.cluster import Cluster
from tests.simulation.storeless import COMMITS, TAKE_OVER_SECONDS, Until


class Flapping:
    """In a cluster in which all else is well."""

    def __init__(self, cluster: Cluster, until: Until) -> None:
        self._cluster = cluster
        self._until = until

    def commit_beside(self, chance: random.Random) -> None:
        """One member of the ready set, at times the only one beside the primary, gets nowhere any more; commits come
        about without it (P12), unless too few are left for ``min_ready``."""
        record, book, network = self._cluster.coordination.valid, self._cluster.book, self._cluster.network
        if record is None or record.primary is None:
            return
        backups = sorted({member.node for member in record.ready} - {record.primary.node})
        if not backups or len(self._cluster.running()) <= needed(record, self._cluster.settings):
            return
        name = chance.choice(backups)
        nowhere = chance.choice((network.streamless, network.streamless, network.answerless))
        point = "frame of the stream to" if nowhere is network.streamless else "acknowledgement of"
        self._cluster.world.say("fault", f"each connection ends at the first {point} {name}")
        nowhere.add(name)
        self._cluster.world.run(self._cluster.world.now + chance.uniform(0.0, 0.5))
        least = book.count(OK) + COMMITS
        self._until(lambda: book.count(OK) >= least, TAKE_OVER_SECONDS, f"{COMMITS} commits beside {name}")
        nowhere.discard(name)
