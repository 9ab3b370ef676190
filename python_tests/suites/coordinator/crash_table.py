"""``make dtx-crashes``: every case of ``python_tests.suites.coordinator.crashes``, and the page that shows what came of
each.

python -m python_tests.suites.coordinator.crash_table [--out docs/dtx_crashes.md] [--seed 7]
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Mapping
from pathlib import Path

from python_tests.harness.crash_table import make_page, table
from python_tests.suites.coordinator.crashes import (
    AFTER,
    AT,
    CLUSTER,
    DATABASE,
    DONE,
    LEFT,
    VICTIMS,
    WAYS,
    Case,
    Found,
    Site,
    all_cases,
)
from python_tests.suites.coordinator.transfer import KILLED, ORDER_OF_STEPS, UNKNOWN

HEAD = """# What a crash does to a distributed transaction

This page shows how a distributed transaction ends when the coordinator, brokers or the database are
killed, at each step. It is made by `make dtx-crashes`. The work is a transfer: take an order from a
queue, debit an account in PostgreSQL, publish an invoice and a parcel, in one transaction of the
coordinator in `recovery/coordinator/`. The brokers are three nodes, and every process is real. The
coordinator is connected to the *backup in between*, which passes it on to the primary. In each case
one victim is killed by SIGKILL at one step. Then it is started again, `txha dtx recover` is run,
and everything is counted.

- *committed*: one debit, one invoice, one parcel, and the order is gone.
- *rolled back*: the order is there again, and nothing else.
- *+n*: so many branches were in doubt until the recovery run settled them.
- *(untold)*: the program that made the transfer was killed, or could not be told how it ended. In
  all other cases it was told what had happened.

In every case nothing was in doubt afterwards, and at the end the sum of money, the rows and the
messages agreed with the orders. A case that breaks any of this ends the run, and no page is
written.
"""


def cell(found: Found) -> str:
    """What came of a case, in a few words."""
    text = "committed" if found.order == DONE else "rolled back"
    if found.settled:
        text += f" +{found.settled}"
    if found.told in (KILLED, UNKNOWN):
        text += " (untold)"
    return text


def page(found: Mapping[Case, Found], seconds: float) -> str:
    """The page."""
    parts = [HEAD, f"\n{len(found)} cases, {seconds:.0f} seconds.\n"]
    for way, victims in ((AT, VICTIMS), (AFTER, VICTIMS), (LEFT, (CLUSTER, DATABASE))):
        parts.append(f"\n## {way.capitalize()} the step\n\nKilled {WAYS[way]}.\n\n")
        parts.append(
            table(
                [[step, *(cell(found[Case(each, step, way)]) for each in victims)] for step in ORDER_OF_STEPS], victims
            )
        )
    return "".join(parts)


def main() -> int:
    """Run all cases; the exit status is 1 if a promise was broken."""
    parser = argparse.ArgumentParser(description="Every crash of a distributed transaction.")
    parser.add_argument("--out", type=Path, default=Path("docs/dtx_crashes.md"))
    parser.add_argument("--seed", type=int, default=7)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="txha-crashes-") as directory:
        return make_page(given.out, Site(Path(directory), given.seed), all_cases(), cell, page)


if __name__ == "__main__":
    raise SystemExit(main())
