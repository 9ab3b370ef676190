"""Draws a sample of mutations: by its seed alone, over all mutations that there are."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

from tests.mutants.finder import Finder
from tests.mutants.mutation import Mutation, changes_code
from tests.mutants.scope import mutated_files


def all_mutations(root: Path, only: str = "") -> list[Mutation]:
    """Every mutation of every file whose path begins with ``only``; a few of them may be no programs."""
    paths = [path for path in mutated_files(root) if path.startswith(only)]
    return [each for path in paths for each in Finder(path, (root / path).read_text()).mutations]


def draw(root: Path, count: int, seed: int, only: str = "") -> list[Mutation]:
    """``count`` mutations, or all, each as likely as any other. The first of a larger draw are a smaller one."""
    order = sorted(all_mutations(root, only), key=lambda each: (each.path, each.start, each.operator, each.new))
    random.Random(seed).shuffle(order)
    return list(islice(_programs(root, order), count))


def _programs(root: Path, mutations: list[Mutation]) -> Iterator[Mutation]:
    """Those that make another program, each once: two operators may write the same text."""
    seen: set[tuple[str, str]] = set()
    for each in mutations:
        source = (root / each.path).read_text()
        mutated = (each.path, each.apply(source))
        if mutated not in seen and changes_code(source, each):
            seen.add(mutated)
            yield each
