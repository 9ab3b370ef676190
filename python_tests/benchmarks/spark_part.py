"""One part of the benchmarks of the pipeline on Spark."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Part:
    """``measure(quick, place)`` gives figures as JSON can hold them; ``show(figures, out)`` writes plots into ``out``
    and gives the lines of the page."""

    measure: Callable[[bool, Path], dict[str, Any]]
    show: Callable[[dict[str, Any], Path], list[str]]
