"""Faults that coordinators and recovery runs once had, put back to see that they are found.

    python -m python_tests.suites.money.planted FAULT dtx recover …

runs a command of ``txha`` with one of them.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator

FAULTS: dict[str, str] = {
    "a_database_is_called_as_its_client_calls_it": "a pooler's other name for a database hides its prepared branches",
    "all_tables_of_a_database_are_one": "the recovery run of one application settles what another one decides",
    "a_link_is_replaced_by_a_file": "a log that is named by a symbolic link is made smaller in the place of the link",
    "tags_of_every_channel_begin_at_one": "a tag of a lost channel settles another message",
}
"""Those of ``tests/coordinator_model/seeded.py`` that a round can find."""


@contextlib.contextmanager
def put_back(name: str | None) -> Iterator[None]:
    """While this is open, the fault is there. None is no fault."""
    with contextlib.ExitStack() as stack:
        if name is not None:
            from tests.coordinator_model.seeded import SEEDED

            next(each for each in SEEDED if each.name == name).plant(stack)
        yield


def main() -> None:
    """A command of ``txha``."""
    from broker_plugin.cli.main import main as txha

    fault = sys.argv.pop(1)
    with put_back(fault):
        txha()


if __name__ == "__main__":
    main()
