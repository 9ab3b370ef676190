"""The steps of the sink and the source, by name: at each of them a test can hold a process, and kill it or others.

With the environment variable TXHA_SPARK_HOLD set to a directory, the first process that reaches the step which the file
``wanted`` there names takes that file away, writes its own number into ``held``, and waits until there is a file with
the rest of ``wanted`` as its name. Without the variable a step costs one look-up.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

STEPS: dict[str, str] = {
    "write begun": "a task has begun its branch, and has published nothing",
    "rows published": "a task has published its rows, and has not prepared",
    "branch prepared": "a task's branch is prepared, and Spark does not know",
    "commit called": "Spark has asked to commit the batch",
    "record held": "the driver holds the record of the query, and has not changed it",
    "decided": "the decision is durable, and no branch is committed",
    "one committed": "one branch is committed",
    "committed": "all branches are committed, and Spark does not know",
    "offset planned": "the source has chosen the messages of a batch",
    "settling": "Spark has committed a batch, and its messages are not settled",
    "settled": "the messages of a committed batch are settled",
}


def reached(step: str) -> None:
    """Wait here if the environment asks for it."""
    assert step in STEPS, step
    directory = os.environ.get("TXHA_SPARK_HOLD")
    if not directory:
        return
    place = Path(directory)
    taken = place / f"taken-{os.getpid()}"
    try:
        wanted, _, until = (place / "wanted").read_text().partition("\n")
        if wanted != step:
            return
        (place / "wanted").rename(taken)
    except FileNotFoundError:
        return
    taken.write_text(str(os.getpid()))
    taken.rename(place / "held")
    while not (place / until).exists():
        time.sleep(0.01)
