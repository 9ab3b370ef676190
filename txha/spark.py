"""Spark: a session that knows the formats ``txha`` and ``txha-queue``, rows of logs without Spark, and the audit.

Needs the extra ``spark`` and Java 17 or later; a name that needs PySpark imports it when it is asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from txha._lazy import lazy

if TYPE_CHECKING:
    from recovery.pipeline.archive.reading import archive_rows
    from recovery.pipeline.audit.audit import audit
    from recovery.pipeline.audit.facts import moment
    from recovery.pipeline.audit.findings import Finding
    from recovery.pipeline.audit.inputs import Rows, read_history, read_rows
    from recovery.pipeline.audit.report import AuditReport
    from recovery.pipeline.node import node_table
    from recovery.pipeline.session import register, spark_session
else:
    __getattr__, __dir__ = lazy(
        __name__,
        {
            "recovery.pipeline.archive.reading": ("archive_rows",),
            "recovery.pipeline.audit.audit": ("audit",),
            "recovery.pipeline.audit.facts": ("moment",),
            "recovery.pipeline.audit.findings": ("Finding",),
            "recovery.pipeline.audit.inputs": ("Rows", "read_history", "read_rows"),
            "recovery.pipeline.audit.report": ("AuditReport",),
            "recovery.pipeline.node": ("node_table",),
            "recovery.pipeline.session": ("register", "spark_session"),
        },
        globals(),
    )

__all__ = [
    "spark_session",
    "register",
    "node_table",
    "archive_rows",
    "read_rows",
    "Rows",
    "read_history",
    "audit",
    "AuditReport",
    "Finding",
    "moment",
]
