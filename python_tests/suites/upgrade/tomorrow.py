"""A node of a version after the present one: it announces a feature more, and knows a flag for it.

``python tomorrow.py node --config FILE`` in place of ``txha node --config FILE``.
"""

from __future__ import annotations

import sys

from broker_plugin.cli.main import main
from ha.messages import greeting
from txobserver.actions import FLAGS

FLAG = "tomorrow"

if __name__ == "__main__":
    FLAGS[FLAG] = "every node is of tomorrow"
    greeting.FEATURES = frozenset({*greeting.FEATURES, FLAG})
    sys.exit(main())
