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

from python_tests.harness.cluster import free_base_port
from python_tests.harness.waiting import wait_until

HOME = Path(pyspark.__file__).parent
START_SECONDS = 120.0
DEFAULTS = """
spark.driver.bindAddress 127.0.0.1
spark.driver.host 127.0.0.1
spark.driver.memory 512m
spark.executor.memory 512m
spark.sql.shuffle.partitions 2
spark.ui.enabled false
"""
"""Of every job, as the operator of a small cluster would set them in spark-defaults.conf"""


class StandaloneCluster:
    """A context manager: everything it started is ended with it. ``python`` runs the jobs' Python."""

    def __init__(self, directory: Path, python: Path, workers: int = 2) -> None:
        self.url = f"spark://127.0.0.1:{free_base_port(1)}"
        self._directory = directory
        self._master: subprocess.Popen[bytes] | None = None
        self._workers: list[subprocess.Popen[bytes]] = []
        self._count = workers
        (directory / "conf").mkdir()
        (directory / "conf" / "spark-defaults.conf").write_text(DEFAULTS)
        self.environment = {
            **os.environ,
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_LOG_DIR": str(directory),
            "SPARK_CONF_DIR": str(directory / "conf"),
            "PYSPARK_PYTHON": str(python),
            "PYSPARK_DRIVER_PYTHON": str(python),
        }

    def __enter__(self) -> StandaloneCluster:
        port = self.url.rpartition(":")[2]
        try:
            self._master = self._start("master", "--host", "127.0.0.1", "--port", port, "--webui-port", "0")
            for _ in range(self._count):
                self._start_worker()
            wait_until(lambda: self.registered() == self._count, START_SECONDS, "the registration of all workers")
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

    def submit(
        self, job: Path, arguments: Sequence[str], py_files: Path, out: Path, hold: Path | None = None
    ) -> subprocess.Popen[bytes]:
        """Run a job by spark-submit, in a session of processes of its own; what it says goes to a file.

        PySpark does not hand ``--py-files`` to the driver's process that plans streams, so PYTHONPATH names them too.
        ``hold`` is TXHA_SPARK_HOLD, at the driver and at the executors.
        """
        held = {} if hold is None else {"TXHA_SPARK_HOLD": str(hold)}
        settings = [word for name in held for word in ("--conf", f"spark.executorEnv.{name}={held[name]}")]
        with out.open("ab") as output:
            return subprocess.Popen(
                [
                    *(str(HOME / "bin" / "spark-submit"), "--master", self.url, "--py-files", str(py_files)),
                    *(*settings, str(job), *arguments),
                ],
                env={**self.environment, **held, "PYTHONPATH": str(py_files)},
                cwd=self._directory,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def replace_worker_of(self, process: int) -> None:
        """SIGKILL of the worker in whose executor a process runs, and of the executor; then another one is started."""
        above = [process]
        while above[-1] > 1:
            above.append(_parent(above[-1]))
        (worker,) = [each for each in self._workers if each.pid in above]
        executor = above[above.index(worker.pid) - 1]
        for pid in (worker.pid, executor):
            os.kill(pid, signal.SIGKILL)
        worker.wait()
        self._workers.remove(worker)
        self._start_worker()

    def stop(self) -> None:
        """End every process; a worker ends its executors."""
        processes = [*self._workers, *([self._master] if self._master else [])]
        for process in processes:
            process.send_signal(signal.SIGTERM)
        for process in processes:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _start_worker(self) -> None:
        name = f"worker-{len(list(self._directory.glob('worker-*.log')))}"
        work = str(self._directory / name)
        size = ("--cores", "1", "--memory", "1g")
        self._workers.append(
            self._start(name, "--host", "127.0.0.1", *size, "--webui-port", "0", "--work-dir", work, self.url)
        )

    def _start(self, name: str, *arguments: str) -> subprocess.Popen[bytes]:
        kind = name.partition("-")[0]
        command = [str(HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{kind}.{kind.capitalize()}", *arguments]
        with (self._directory / f"{name}.log").open("wb") as log:
            return subprocess.Popen(command, stdout=log, stderr=log, env=self.environment)


def _parent(process: int) -> int:
    """The process that has started this one."""
    return int(Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[1])


def python_without_us(directory: Path) -> Path:
    """A Python with the wheels of this environment and without our code, which is only linked into it."""
    packages = HOME.parent
    script = directory / "python"
    script.write_text(f'#!/bin/sh\nPYTHONPATH="$PYTHONPATH:{packages}" exec {sys.executable} -S "$@"\n')
    script.chmod(0o755)
    return script
