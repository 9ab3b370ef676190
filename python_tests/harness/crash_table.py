"""Crash tables, as by ``make dtx-crashes``: every case is run, and a page shows what came of each."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Protocol, TypeVar

C = TypeVar("C", contravariant=True)
F = TypeVar("F", covariant=True)
Case = TypeVar("Case")
Found = TypeVar("Found")


class Broken(AssertionError):
    """A promise was broken, or a case did not come about; the sentence says which."""


class Site(Protocol[C, F]):
    """Where cases are run."""

    def run(self, case: C) -> F:
        """What came of a case. Raises Broken."""
        ...

    def check_the_rest(self) -> None:
        """What must hold when all cases have been run. Raises Broken."""
        ...


def make_page(
    out: Path,
    at: AbstractContextManager[Site[Case, Found]],
    cases: Sequence[Case],
    cell: Callable[[Found], str],
    page: Callable[[Mapping[Case, Found], float], str],
) -> int:
    """Run all cases and write the page; the exit status is 1, and nothing is written, if a promise was broken.

    ``cell`` says in a few words what came of a case; ``page`` makes the text of everything and of how long it took.
    """
    began, found = time.monotonic(), {}
    with at as site:
        try:
            for number, case in enumerate(cases):
                started = time.monotonic()
                found[case] = site.run(case)
                took = time.monotonic() - started
                print(f"{number + 1:3}/{len(cases)}  {case!s:50} {cell(found[case]):25} {took:5.1f} s", flush=True)
            site.check_the_rest()
        except Broken as broken:
            print(f"BROKEN {broken}", file=sys.stderr)
            return 1
    out.write_text(page(found, time.monotonic() - began))
    print(f"every promise held; {out} is written")
    return 0


def table(rows: Sequence[Sequence[str]], victims: Sequence[str]) -> str:
    """Steps down, victims across."""
    lines = [["step", *victims], ["---"] * (len(victims) + 1), *rows]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
