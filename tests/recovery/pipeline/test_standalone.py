"""The same job as in one process, by spark-submit on a standalone cluster, with the code from one file."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from recovery.pipeline.node import node_table
from tests.recovery.pipeline.events import STORY, apply_up_to, write_node
from tests.recovery.pipeline.standalone import StandaloneCluster

JOB = """
import json, socket, sys
from recovery.pipeline.session import spark_session

spark = spark_session("job")
directory, out = sys.argv[1:]
frame = spark.read.format("txha").option("partitionBytes", "400").load(directory)
where = frame.rdd.mapPartitions(lambda rows: [__import__("os").getppid()]).collect()
stream = spark.readStream.format("txha").load(directory).writeStream.format("parquet")
stream.option("checkpointLocation", out + ".checkpoint").trigger(availableNow=True).start(out).awaitTermination()
print(json.dumps({
    "master": spark.conf.get("spark.master"),
    "rows": frame.count(),
    "executors": len(set(where)),
    "streamed": spark.read.parquet(out).count(),
    "code": sys.modules["recovery"].__file__,
}))
"""


@pytest.mark.standalone
@pytest.mark.timeout(600)
def test_a_job_by_spark_submit(standalone: StandaloneCluster, code: Path, tmp_path: Path) -> None:
    for name in ("n1", "n2"):
        write_node(tmp_path / "nodes" / name, STORY, name)
        apply_up_to(tmp_path / "nodes" / name, sum(map(len, STORY)))
    job, out = tmp_path / "job.py", tmp_path / "said"
    job.write_text(JOB)
    python = standalone.environment["PYSPARK_PYTHON"]
    without = subprocess.run([python, "-c", "import recovery"], capture_output=True, text=True, check=False, cwd="/")
    assert "No module named 'recovery'" in without.stderr
    done = standalone.submit(job, [str(tmp_path / "nodes"), str(tmp_path / "out")], code, out)
    assert done.wait() == 0, out.read_text()[-3000:]
    said = json.loads(next(line for line in out.read_text().splitlines() if line.startswith("{")))
    rows = 2 * node_table(tmp_path / "nodes" / "n1").num_rows
    assert (said["master"], said["rows"], said["streamed"]) == (standalone.url, rows, rows)
    assert said["executors"] == 2
    assert ".zip" in said["code"]
