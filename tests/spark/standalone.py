"""A standalone cluster of Spark on loopback: a master and workers as real processes, and jobs by spark-submit."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType

import pyspark

from python_tests.processes import free_base_port
from python_tests.waiting import wait_until

HOME = Path(pyspark.__file__).parent
START_SECONDS = 120.0


class StandaloneCluster:
    """A context manager: everything it started is ended with it. ``python`` runs the jobs' Python."""

    def __init__(self, directory: Path, python: Path, workers: int = 2) -> None:
        self.url = f"spark://127.0.0.1:{free_base_port(1)}"
        self._directory = directory
        self._workers = workers
        self._processes: list[subprocess.Popen[bytes]] = []
        self.environment = {
            **os.environ,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_LOG_DIR": str(directory),
            "PYSPARK_PYTHON": str(python),
            "PYSPARK_DRIVER_PYTHON": str(python),
        }

    def __enter__(self) -> StandaloneCluster:
        port = self.url.rpartition(":")[2]
        try:
            self._start("master", "--host", "127.0.0.1", "--port", port, "--webui-port", "0")
            for number in range(self._workers):
                work = str(self._directory / f"work-{number}")
                self._start(
                    f"worker-{number}",
                    *("--host", "127.0.0.1", "--cores", "1", "--memory", "1g"),
                    *("--webui-port", "0", "--work-dir", work, self.url),
                )
            wait_until(lambda: self.registered() == self._workers, START_SECONDS, "the registration of all workers")
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def registered(self) -> int:
        """How many workers the master knows."""
        return len(re.findall("Registering worker", (self._directory / "master.log").read_text()))

    def submit(self, job: Path, arguments: Sequence[str], py_files: Path) -> subprocess.CompletedProcess[str]:
        """Run a job by spark-submit, to its end.

        PySpark does not hand ``--py-files`` to the driver's process that plans streams, so PYTHONPATH names them too.
        """
        return subprocess.run(
            [
                *(str(HOME / "bin" / "spark-submit"), "--master", self.url, "--py-files", str(py_files)),
                *("--conf", "spark.driver.bindAddress=127.0.0.1", "--conf", "spark.driver.host=127.0.0.1"),
                *("--conf", "spark.ui.enabled=false", "--executor-memory", "512m", "--driver-memory", "512m"),
                *(str(job), *arguments),
            ],
            env={**self.environment, "PYTHONPATH": str(py_files)},
            cwd=self._directory,
            capture_output=True,
            text=True,
            check=False,
        )

    def stop(self) -> None:
        """End every process; a worker ends its executors."""
        for process in reversed(self._processes):
            process.send_signal(signal.SIGTERM)
        for process in self._processes:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _start(self, name: str, *arguments: str) -> None:
        kind = name.partition("-")[0]
        with (self._directory / f"{name}.log").open("wb") as log:
            self._processes.append(
                subprocess.Popen(
                    [
                        str(HOME / "bin" / "spark-class"),
                        f"org.apache.spark.deploy.{kind}.{kind.capitalize()}",
                        *arguments,
                    ],
                    stdout=log,
                    stderr=log,
                    env=self.environment,
                )
            )


def python_without_us(directory: Path) -> Path:
    """A Python with the wheels of this environment and without our code, which is only linked into it."""
    packages = HOME.parent
    script = directory / "python"
    script.write_text(f'#!/bin/sh\nPYTHONPATH="$PYTHONPATH:{packages}" exec {sys.executable} -S "$@"\n')
    script.chmod(0o755)
    return script
