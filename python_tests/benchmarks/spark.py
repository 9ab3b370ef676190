"""``make bench-spark``: how fast the pipeline on Spark is, on this machine with an embedded session.

    python -m python_tests.benchmarks.spark [--quick] [--only source --only …] [--out docs/benchmarks]

Each part is a module's ``Part``; its figures are written as soon as they are there, beside those of earlier runs.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

from python_tests.benchmarks import spark_audit, spark_queue, spark_source
from python_tests.benchmarks.compare import machine
from python_tests.benchmarks.spark_part import Part
from python_tests.harness.cluster import end_on_sigterm

RESULTS, PAGE = "spark.json", "spark.md"
INTRODUCTION = """# How fast the pipeline on Spark is

This page shows how fast Spark reads logs and queues, and how long an audit takes. It is made by
`make bench-spark`: one machine, an embedded session on all its processors.
"""


def parts() -> dict[str, Part]:
    """All of them, in the order of the page."""
    return {
        "source": spark_source.SOURCE,
        "growth": spark_source.GROWTH,
        "start": spark_source.START,
        "audit": spark_audit.AUDIT,
        "queues": spark_queue.QUEUES,
    }


def page(found: dict[str, Any], out: Path) -> str:
    """The page of these figures; the plots go into ``out``."""
    lines = [INTRODUCTION]
    for name, part in parts().items():
        if name in found:
            told = f"Machine: {found[name]['machine']}. {found[name].get('remark', '')}".rstrip()
            lines += [*part.show(found[name], out), "", told, ""]
    return "\n".join(lines)


def main() -> int:
    """Measure, write, and print where."""
    end_on_sigterm()
    known = parts()
    parser = argparse.ArgumentParser(description="Measure how fast the pipeline on Spark is.")
    parser.add_argument("--quick", action="store_true", help="little of everything; writes to build/benchmarks")
    parser.add_argument("--only", action="append", choices=list(known), help="one part; may be repeated")
    parser.add_argument("--out", type=Path, help="where results go; docs/benchmarks, or build/benchmarks if quick")
    parser.add_argument("--remark", default="", help="what else the machine did meanwhile, for the page")
    options = parser.parse_args()
    out: Path = options.out or Path("build/benchmarks" if options.quick else "docs/benchmarks")
    out.mkdir(parents=True, exist_ok=True)
    path = out / RESULTS
    found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    for name in options.only or known:
        with tempfile.TemporaryDirectory(prefix="txha-bench-spark-") as place:
            measured = known[name].measure(options.quick, Path(place))
        found[name] = {"machine": machine(), "remark": options.remark, **measured}
        path.write_text(json.dumps(found, indent=1) + "\n")
        (out / PAGE).write_text(page(found, out))
    print(f"written to {out / PAGE}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
