"""The session listens on loopback only, and says in one sentence what is missing."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from recovery.pipeline.errors import reason

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MISSING = """
from recovery.pipeline.errors import PipelineError
from recovery.pipeline.session import spark_session
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


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[A] Failed:\nTraceback\n  File\nImportError: No module x\n\nat org", "ImportError: No module x"),
        ("[A] Failed:\nTraceback\nrecovery.pipeline.errors.PipelineError: say why\nOSError: x", "say why"),
        ("[A] No such column.\nat org", "[A] No such column."),
    ],
)
def test_what_spark_wraps_is_said_in_one_sentence(text: str, said: str) -> None:
    assert reason(Exception(text)) == said
