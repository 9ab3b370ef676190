"""A Spark session for this project's jobs: embedded, on all processors and with nothing to set up, unless told else."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from recovery.pipeline.errors import PipelineError
from recovery.pipeline.packaging import package_code

if TYPE_CHECKING:
    from pyspark import SparkContext
    from pyspark.sql import SparkSession

LOCAL = "local[*]"
LOOPBACK = "127.0.0.1"
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.python.filterPushdown.enabled": "true",
    "spark.sql.execution.arrow.pyspark.enabled": "true",
    "spark.sql.streaming.stopTimeout": "180s",
}
"""``stopTimeout``: Spark's own default lets ``query.stop()`` wait for ever where a query's Python does not answer. What
source and sink do by themselves ends sooner: each waits for a lost broker or a lock for ``patience``, 60 seconds."""
EMBEDDED = {
    "spark.driver.bindAddress": LOOPBACK,
    "spark.driver.host": LOOPBACK,
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=4 -XX:+UseParallelGC",
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.shuffle.partitions": str(os.cpu_count() or 1),
}
"""Only on the master ``local``: it listens on loopback and has the processors of this machine. Rows come from Python's
processes by Unix sockets, which takes a tenth less than TCP."""


QUIET = {"spark.log.level": "OFF"}
"""For commands, which say in one sentence what an exception of Spark has come from"""


def spark_session(
    name: str = "txha", master: str | None = None, settings: Mapping[str, str] | None = None, quiet: bool = False
) -> SparkSession:
    """The running session, or a new one with the sources and sinks of this project registered.

    ``master``: as for spark-submit; without it, what spark-submit has set, else ``local[*]``. Executors of a cluster
    are given this project's code; the wheels that it needs, and PySpark, they must have. ``settings`` override ours.
    ``quiet``: Spark itself logs nothing, unless spark-submit has set a level.
    Raises PipelineError without PySpark or Java.
    """
    check_installed()
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    from pyspark import SparkConf, SparkContext
    from pyspark.sql import SparkSession

    if "PYSPARK_GATEWAY_PORT" in os.environ:
        SparkContext._ensure_initialized()  # only spark-submit's JVM knows what was set: before, a conf is empty
    given = SparkConf()
    chosen = master or given.get("spark.master", None) or LOCAL
    if chosen.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", LOOPBACK)  # it asks for more than where to listen, and warns
    ours = {**SETTINGS, **(QUIET if quiet else {}), **(EMBEDDED if chosen.startswith("local") else {})}
    builder = SparkSession.builder.appName(name).master(chosen)
    for key, value in {**ours, **dict(given.getAll()), **(settings or {})}.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    if not str(session.sparkContext.master).startswith("local"):
        ship_code(session.sparkContext)
    register(session)
    return session


def ship_code(context: SparkContext) -> None:
    """Give our code to the executors of a cluster, unless it came from a file that they have as well (``--py-files``).

    Before the formats are registered: each keeps the list of files that there are then.
    """
    if Path(__file__).exists():
        package = Path(context._temp_dir) / "txha-of-the-driver.zip"  # Spark removes it in the end
        package_code(package)
        context.addPyFile(str(package))


def register(session: SparkSession) -> None:
    """Make the formats of this project known to a session."""
    from recovery.pipeline.queues.data_source import QueueSource
    from recovery.pipeline.source.data_source import TxhaSource

    session.dataSource.register(TxhaSource)
    session.dataSource.register(QueueSource)


def check_installed() -> None:
    """Raises PipelineError, with what is to be installed."""
    if find_spec("pyspark") is None:
        raise PipelineError("this needs PySpark: pip install 'txha[spark]'")
    home = os.environ.get("JAVA_HOME")
    if not (home and os.path.exists(os.path.join(home, "bin", "java"))) and shutil.which("java") is None:
        raise PipelineError("Spark needs Java 17 or later; on Debian: apt-get install openjdk-17-jre-headless")
