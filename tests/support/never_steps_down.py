"""A node with a fault that was planted: its lease never ends by the clock, whatever it can reach.

    python -m tests.support.never_steps_down node --config …

For tests of what looks for primaries without a lease. The core must be the one in Python (``TXHA_CORE=pure``).
"""

from __future__ import annotations

import math

from broker_plugin.cli.main import main
from ha.membership.record_keeper import RecordKeeper


def _never(keeper: RecordKeeper, now: float) -> bool:
    return keeper.lost


def _always(keeper: RecordKeeper, now: float) -> bool:
    return not keeper.releasing and not keeper.lost


PLANTED = {"expired": _never, "holds": _always, "serves_until": property(lambda keeper: math.inf)}
for name, planted in PLANTED.items():
    setattr(RecordKeeper, name, planted)

if __name__ == "__main__":
    main()
