"""``make spark-crash-table``: every case of ``python_tests.suites.spark_queues.crashes``, and the page that shows the
ends.

python -m python_tests.suites.spark_queues.crash_table [--out docs/spark_crashes.md]
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Mapping
from pathlib import Path

from python_tests.harness.crash_table import make_page, table
from python_tests.suites.spark_queues.crashes import VICTIMS, Case, Site, all_cases
from recovery.pipeline.queues.steps import STEPS

HEAD = """# What a crash does to queues on Spark

This page shows what becomes of a query from queue to queue when its processes or the brokers are
killed, at each step. It is made by `make spark-crash-table`. A streaming query takes messages from
one queue and puts them into another, by `txha-queue` on both sides
([spark_queues.md](spark_queues.md)). The brokers are three nodes, and every process is real. In
each case one victim is killed by SIGKILL when a batch has come to a step. Whenever the query must
be started again, it has another number of partitions. The victims are:

"""
WHAT = """
The outcomes are:

- *goes on*: the query itself went on, by trying a task again or by waiting for the next primary.
- *starts again*: the query, or the driver, was started again.

In every case each message that went in came out once, before the next case began. In the end
nothing was in doubt, and the brokers held one record of the query. A case that breaks any of this
ends the run, and no page is written.

"""


def page(found: Mapping[Case, str], seconds: float) -> str:
    """The page."""
    victims = "".join(f"- *{name}*: {what}\n" for name, what in VICTIMS.items())
    steps = "".join(f"| {step} | {what} |\n" for step, what in STEPS.items())
    rows = [[step, *(found[Case(victim, step)] for victim in VICTIMS)] for step in STEPS]
    return (
        f"{HEAD}{victims}{WHAT}{table(rows, list(VICTIMS))}\n{len(found)} cases, {seconds:.0f} seconds.\n\n"
        f"| step | what has happened |\n| --- | --- |\n{steps}"
    )


def main() -> int:
    """Run all cases; the exit status is 1 if a promise was broken."""
    parser = argparse.ArgumentParser(description="Every crash of a query from queue to queue.")
    parser.add_argument("--out", type=Path, default=Path("docs/spark_crashes.md"))
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="txha-crashes-") as directory:
        return make_page(given.out, Site(Path(directory) / "site"), all_cases(), str, page)


if __name__ == "__main__":
    raise SystemExit(main())
