"""The session listens on loopback only, and says in one sentence what is missing."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MISSING = """
from recovery.pipeline.session import PipelineError, spark_session
try:
    spark_session()
except PipelineError as error:
    print(error)
"""


def test_the_session_is_on_loopback(spark: SparkSession) -> None:
    assert spark.conf.get("spark.driver.host") == spark.conf.get("spark.driver.bindAddress") == "127.0.0.1"
    assert spark.range(10).count() == 10


def test_a_missing_java_is_said() -> None:
    said = subprocess.run([sys.executable, "-c", MISSING], env={"PATH": ""}, capture_output=True, text=True, check=True)
    assert said.stdout == "Spark needs Java 17 or later; on Debian: apt-get install openjdk-17-jre-headless\n"
