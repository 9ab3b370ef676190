"""What the present version writes or sends that a release does not know, each with the feature that stands for it.

A node names its features as it greets (``ha.messages.greeting``), and nothing here is sent to one that does not name
the feature, nor written while one may have to read it. ``python_tests/suites/upgrade/test_understood.py`` compares the
versions: it fails for what is new and does not stand here, and for what stands here and is not new. In the simulator no
node takes a message whose feature it does not name (``tests.simulation.version_checkers``).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cache

PASSED_OVER = "passed over"
"""In place of a feature: a release that does not know it reads the rest, and loses nothing by that. Of the coordination
record nothing can be: a primary of the release would write it back without."""

SINCE: dict[str, dict[str, str]] = {
    "0.1.0": {
        "Beat (43)": "beats",
        "ClientsClosed (70)": "handover",
        "MemberAsk (71)": "members",
        "MemberTold (72)": "members",
        "Record.membership": "members",
        "Membership": "members",
        "ClusterNode": "members",
        "flag members": "members",
        "format of record in SQLite with members": "members",
        "format of record in etcd with members": "members",
        "Hello (0).amqps_host": PASSED_OVER,
        "Hello (0).amqps_port": PASSED_OVER,
        "ReloadCertificates": "certificates",
        "action certificates, version 1": "certificates",
    }
}
"""Release: a name of ``formats.catalogue``, as ``Beat (61)`` for a kind with its fields or ``Record.members`` for a
field: the feature"""

OF_RELEASED = {**dict.fromkeys(range(28, 43), "calls"), **dict.fromkeys(range(50, 53), "users"), 60: "alarms"}
"""The kinds of messages of the oldest release that have a feature, by their numbers: as if it came with each"""


@cache
def feature_of_message(number: int) -> str | None:
    """What a node must have named that is sent a message of this kind; None: each node knows it."""
    for since in SINCE.values():
        for name, feature in since.items():
            if re.fullmatch(rf"\w+ \({number}\)", name):
                return feature
    return OF_RELEASED.get(number)


def unannounced(
    old: Mapping[str, str], new: Mapping[str, str], since: Mapping[str, str], features: set[str]
) -> Iterator[str]:
    """What differs in these catalogues and is no part of a feature, in a sentence each. ``features``: the new ones."""
    used = set()
    for name in sorted(old.keys() | new.keys()):
        if old.get(name) == new.get(name):
            continue
        declared = next((each for each in since if belongs(name, each)), None)
        if declared is None:
            yield f"{name} was {old.get(name, 'absent')!r} and is {new.get(name, 'absent')!r}: name its feature"
            continue
        used.add(declared)
        feature = since[declared]
        if feature == PASSED_OVER and name.startswith("Record"):
            yield f"{name}: a primary of the release writes the record back without it: name a feature"
        elif feature != PASSED_OVER and feature not in features:
            yield f"{name}: no node names the feature {feature}, or the release names it too"
    yield from (f"{each} is named, and is as it was" for each in since if each not in used)


def belongs(name: str, declared: str) -> bool:
    """Whether this name of a catalogue is the declared one, a field of it, or that it is an alternative somewhere."""
    return name == declared or name.startswith(f"{declared}.") or name.endswith(f": {declared}")
