"""One Spark session for all tests of the pipeline: its start takes seconds, and a query of a few rows does not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from recovery.pipeline.packaging import package_code
from recovery.pipeline.session import spark_session
from tests.recovery.pipeline.standalone import StandaloneCluster, python_without_us

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FAST = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.driver.memory": "1g",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.codegen.wholeStage": "false",
}


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session on two processors, tuned for queries of a few rows."""
    warehouse: Path = tmp_path_factory.mktemp("warehouse")
    session = spark_session("txha-tests", "local[2]", {**FAST, "spark.sql.warehouse.dir": str(warehouse)})
    yield session
    session.stop()


@pytest.fixture(scope="session")
def standalone(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandaloneCluster]:
    """A master and two workers, whose Python does not have our code."""
    directory = tmp_path_factory.mktemp("standalone")
    with StandaloneCluster(directory, python_without_us(directory)) as running:
        yield running


@pytest.fixture(scope="session")
def code(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Our code in one file."""
    target = tmp_path_factory.mktemp("code") / "txha.zip"
    assert package_code(target) > 50
    return target


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A test that asks for the session is marked ``spark``."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker("spark")
