"""``format("txha")``: what it reads is what the log says, with every filter exactly as Spark itself would apply it."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from pyspark.sql import datasource as s
from pyspark.sql.functions import expr

from recovery.pipeline.archive.files import write_rows
from recovery.pipeline.archive.job import add_files
from recovery.pipeline.archive.lake import Lake
from recovery.pipeline.errors import PipelineError
from recovery.pipeline.node import node_table
from recovery.pipeline.selection import Selection
from recovery.pipeline.source.batch import BatchReader, condition_of
from recovery.pipeline.source.options import parse_options
from recovery.pipeline.source.ranges import LogRange
from recovery.reader.log_reader import LogReader
from recovery.store.segment import segment_path
from tests.recovery.pipeline.events import BRANCH, NAMED, PLAIN, STORY, write_node
from txobserver.ports.store import StoreError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

PUSHDOWN = "spark.sql.python.filterPushdown.enabled"
AT = datetime(1970, 1, 1, 0, 0, 12, tzinfo=UTC)
FILTERS: list[tuple[str, Any]] = [
    ("queue = 'q'", s.EqualTo(("queue",), "q")),
    ("queue <> 'q'", s.Not(s.EqualTo(("queue",), "q"))),
    ("queue <=> 'q'", s.EqualNullSafe(("queue",), "q")),
    ("NOT queue <=> 'q'", s.Not(s.EqualNullSafe(("queue",), "q"))),
    ("queue <=> NULL", s.EqualNullSafe(("queue",), None)),
    ("queue IN ('r', 'x')", s.In(("queue",), ("r", "x"))),
    ("queue IN ('r', NULL)", s.In(("queue",), ("r", None))),
    ("NOT queue IN ('r', NULL)", s.Not(s.In(("queue",), ("r", None)))),
    ("NOT queue IN ('r', 'x')", s.Not(s.In(("queue",), ("r", "x")))),
    ("queue IS NULL", s.IsNull(("queue",))),
    ("queue IS NOT NULL", s.IsNotNull(("queue",))),
    ("NOT (queue IS NOT NULL)", s.Not(s.IsNotNull(("queue",)))),
    ("kind LIKE 'de%'", s.StringStartsWith(("kind",), "de")),
    ("kind LIKE '%e'", s.StringEndsWith(("kind",), "e")),
    ("NOT kind LIKE '%ue%'", s.Not(s.StringContains(("kind",), "ue"))),
    (f"transaction = {PLAIN}", s.EqualTo(("transaction",), PLAIN)),
    (f"transaction <=> {NAMED}", s.EqualNullSafe(("transaction",), NAMED)),
    ("transaction <=> NULL", s.EqualNullSafe(("transaction",), None)),
    (f"transaction IN ({PLAIN}, NULL)", s.In(("transaction",), (PLAIN, None))),
    (f"NOT transaction = {BRANCH}", s.Not(s.EqualTo(("transaction",), BRANCH))),
    ("number > 1", s.GreaterThan(("number",), 1)),
    ("number <= 2", s.LessThanOrEqual(("number",), 2)),
    ("position >= 7", s.GreaterThanOrEqual(("position",), 7)),
    ("position < 7", s.LessThan(("position",), 7)),
    ("position = 7", s.EqualTo(("position",), 7)),
    ("position IN (3, 7, 12)", s.In(("position",), (3, 7, 12))),
    ("commit", s.EqualTo(("commit",), True)),
    ("NOT commit", s.Not(s.EqualTo(("commit",), True))),
    ("time >= timestamp '1970-01-01 00:00:12'", s.GreaterThanOrEqual(("time",), AT)),
    ("time < timestamp '1970-01-01 00:00:12'", s.LessThan(("time",), AT)),
    ("time = timestamp '1970-01-01 00:00:12'", s.EqualTo(("time",), AT)),
    ("node = 'n2'", s.EqualTo(("node",), "n2")),
    ("reason > 'a'", s.GreaterThan(("reason",), "a")),
]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("cluster")
    write_node(directory / "a", STORY, "n1", segment_bytes=380)
    write_node(directory / "b", STORY[:5], "n2", segment_bytes=380)
    (directory / "no-node").mkdir()
    return directory


def whole(cluster: Path) -> pa.Table:
    return pa.concat_tables([node_table(cluster / name) for name in ("a", "b")])


def in_order(rows: list[Any]) -> list[dict[str, Any]]:
    found = [row.asDict() for row in rows]
    for row in found:
        row["time"] = row["time"].replace(tzinfo=UTC)
    return sorted(found, key=lambda row: (row["node"], row["position"], row["part"]))


def read_with(cluster: Path, pushed: list[Any], **options: str) -> list[dict[str, Any]]:
    """As Spark reads, without Spark; what is not taken by the reader fails the test."""
    reader = BatchReader(parse_options({"path": str(cluster), "pushFilters": "true", **options}))
    assert not list(reader.pushFilters(pushed))
    return [row for part in reader.partitions() for batch in reader.read(part) for row in batch.to_pylist()]


def test_every_row_once_whatever_the_partitions(spark: SparkSession, cluster: Path) -> None:
    frame = spark.read.format("txha").option("partitionBytes", "400").load(str(cluster))
    assert frame.rdd.getNumPartitions() >= 4
    assert in_order(frame.collect()) == whole(cluster).to_pylist()


def test_every_filter_is_applied_as_spark_does(spark: SparkSession, cluster: Path) -> None:
    rows = whole(cluster)
    truth = spark.createDataFrame(rows).select(*[expr(text).alias(str(at)) for at, (text, _) in enumerate(FILTERS)])
    columns = truth.toPandas()
    for at, (text, pushed) in enumerate(FILTERS):
        wanted = [row for row, keep in zip(rows.to_pylist(), columns[str(at)], strict=True) if keep is True]
        assert read_with(cluster, [pushed], partitionBytes="400") == wanted, text


@pytest.mark.parametrize("archived", [False, True], ids=["logs", "archive"])
def test_columns_by_an_option_or_by_a_schema(
    spark: SparkSession, cluster: Path, tmp_path: Path, archived: bool
) -> None:
    place = cluster
    if archived:
        place = tmp_path / "archive"
        for name in ("a", "b"):
            written = write_rows(place, node_table(cluster / name).to_batches())
            add_files(Lake(place), Lake(place).current(), written, tolerant=False)
    source = spark.read.format("txha").option("kind", "enqueue,decide").option("node", "n1")
    wanted = [
        {"queue": row["queue"], "commit": row["commit"]}
        for row in whole(cluster).to_pylist()
        if row["node"] == "n1" and row["kind"] in ("enqueue", "decide")
    ]
    by_option = source.option("columns", "queue, commit").load(str(place))
    assert by_option.columns == ["queue", "commit"]
    by_schema = source.schema("queue string, commit boolean").load(str(place))
    for frame in (by_option, by_schema):
        assert sorted(map(repr, (row.asDict() for row in frame.collect()))) == sorted(map(repr, wanted))
    assert by_option.filter("commit").count() == sum(1 for row in wanted if row["commit"])
    assert {row.queue for row in by_option.select("queue").collect()} == {row["queue"] for row in wanted}


@pytest.mark.parametrize(
    ("wrong", "said"),
    [("queue string, body string", "no column body string"), ("colour string", "no column colour string")],
)
def test_a_schema_of_other_columns_is_refused(spark: SparkSession, cluster: Path, wrong: str, said: str) -> None:
    with pytest.raises(Exception, match=said):
        spark.read.format("txha").schema(wrong).load(str(cluster)).collect()


def test_several_filters_hold_together(cluster: Path) -> None:
    pushed = [pushed for text, pushed in FILTERS if text in ("queue = 'q'", "number <= 2", "node <=> 'n1'")]
    rows = read_with(cluster, [*pushed, s.EqualTo(("kind",), "enqueue")])
    assert rows == [
        row
        for row in whole(cluster).to_pylist()
        if row["queue"] == "q" and row["number"] is not None and row["number"] <= 2 and row["kind"] == "enqueue"
    ]


@pytest.mark.parametrize(
    "pushed",
    [
        s.EqualTo(("queue",), 1),
        s.EqualTo(("position",), 1.5),
        s.EqualTo(("position",), True),
        s.GreaterThan(("position",), 1 << 63),
        s.EqualTo(("queue", "inner"), "q"),
        s.EqualTo(("nothing",), "q"),
        s.EqualTo(("body",), b""),
        s.EqualTo(("time",), datetime(2026, 1, 1)),
        s.GreaterThan(("number",), None),
        s.StringContains(("position",), "1"),
    ],
)
def test_what_cannot_be_applied_exactly_is_left_to_spark(pushed: Any) -> None:
    assert condition_of(pushed) is None


def test_with_and_without_the_setting(spark: SparkSession, cluster: Path) -> None:
    def plan_and_rows() -> tuple[str, list[dict[str, Any]]]:
        source = spark.read.format("txha").option("pushFilters", "true")
        frame: DataFrame = source.load(str(cluster)).filter("queue = 'r' AND length(kind) > 6")
        return frame._jdf.queryExecution().executedPlan().toString(), in_order(frame.collect())

    try:
        spark.conf.set(PUSHDOWN, "false")
        off, rows = plan_and_rows()
    finally:
        spark.conf.set(PUSHDOWN, "true")
    on, same = plan_and_rows()
    assert rows == same and {row["kind"] for row in rows} == {"configure", "enqueue", "publish"}
    assert "queue#" in off.split("Filter")[1].split("\n")[0]
    assert "= r" not in on.split("Filter")[1].split("\n")[0]


def test_a_frame_gives_each_query_what_that_one_asks_for(spark: SparkSession, cluster: Path) -> None:
    """Spark 4.3 keeps the filters of one query for the next ones of the same frame, if they are given to the source."""
    frame = spark.read.format("txha").load(str(cluster))
    truth = whole(cluster)["kind"].to_pylist()
    opened, decided = frame.filter("kind = 'open'"), frame.filter("kind = 'decide'")
    assert opened.count() == truth.count("open")
    assert frame.count() == len(truth)
    assert decided.count() == truth.count("decide") != truth.count("open")
    assert frame.count() == len(truth)
    both = [row.kind for row in opened.union(decided).select("kind").collect()]
    assert (both.count("open"), both.count("decide")) == (truth.count("open"), truth.count("decide"))
    assert len(both) == truth.count("open") + truth.count("decide")


def test_what_no_filter_wants_is_not_read(cluster: Path, tmp_path: Path) -> None:
    directory = tmp_path / "n1"
    write_node(directory, STORY, segment_bytes=1)
    damaged = segment_path(directory / "log", LogReader(directory).segments()[2].first)
    data = bytearray(damaged.read_bytes())
    data[-2] ^= 1
    damaged.write_bytes(data)
    for pushed in (s.LessThan(("position",), 7), s.LessThan(("time",), datetime(1970, 1, 1, 0, 0, 7, tzinfo=UTC))):
        assert len(read_with(directory, [pushed])) == 7
    assert read_with(directory, [s.EqualTo(("node",), "n2")]) == []


def test_the_options_say_the_same_as_filters(cluster: Path) -> None:
    for options, pushed in [
        ({"queue": "r,x"}, s.In(("queue",), ("r", "x"))),
        ({"transaction": "1-1"}, s.EqualTo(("transaction",), PLAIN)),
        ({"transaction": str(BRANCH)}, s.EqualTo(("transaction",), BRANCH)),
        ({"node": "n2"}, s.EqualTo(("node",), "n2")),
        ({"kind": "decide"}, s.EqualTo(("kind",), "decide")),
        ({"xid": "7:g%2F1:"}, s.EqualTo(("xid",), "7:g%2F1:")),
        ({"from": "7"}, s.GreaterThanOrEqual(("position",), 7)),
        ({"to": "7"}, s.LessThanOrEqual(("position",), 7)),
        ({"from": "1970-01-01T00:00:12"}, s.GreaterThanOrEqual(("time",), AT)),
        ({"to": "1970-01-01T01:00:12+01:00"}, s.LessThanOrEqual(("time",), AT)),
    ]:
        assert read_with(cluster, [], **options) == read_with(cluster, [pushed]) != []


def test_partitions_are_about_equal_and_cover_each_event_once(cluster: Path) -> None:
    found = BatchReader(parse_options({"path": str(cluster), "partitionBytes": "400"})).partitions()
    ranges = [(each.place.node, each.first, each.last) for each in found if isinstance(each, LogRange)]
    for node, end in (("n1", 21), ("n2", 15)):
        covered = [at for name, first, last in ranges if name == node for at in range(first, last + 1)]
        assert covered == list(range(1, end + 1))


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({}, "txha reads directories"),
        ({"path": "x", "qeue": "a"}, "no option 'qeue'; the nearest is queue"),
        ({"path": "x", "kind": "publish,enqeue"}, "no kind 'enqeue'; the nearest is enqueue, and there are configure"),
        ({"path": "x", "kind": "Publish"}, "no kind 'Publish'; the nearest is publish"),
        ({"path": "x", "until": "now"}, "until is log or commit"),
        ({"path": "x", "transaction": "a-b"}, "is no transaction"),
        ({"path": "x", "from": "yesterday"}, "neither a position nor a time"),
        ({"path": "x", "partitionBytes": "0"}, "a number above 0"),
        ({"path": "x", "columns": "queue,colour"}, "no column 'colour'"),
        ({"path": "x", "columns": "queue,queue"}, "each column once"),
        ({"path": "x", "failOnDataLoss": "maybe"}, "true or false"),
        ({"path": "x", "startingOffsets": "5"}, "startingOffsets is"),
        ({"path": "[x"}, "is no list"),
    ],
)
def test_options_that_cannot_be_are_refused_in_words(options: dict[str, str], sentence: str) -> None:
    with pytest.raises(PipelineError, match=sentence):
        parse_options(options)


def test_tasks_run_where_the_same_path_leads_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On another machine it leads nowhere, or to that machine's own node: neither may pass for this node's log."""
    here, there = tmp_path / "n1", tmp_path / "n2"
    write_node(here, STORY, "n1")
    write_node(there, STORY, "n2")
    monkeypatch.chdir(tmp_path)
    reader = BatchReader(parse_options({"path": "n1"}))
    (part,) = reader.partitions()
    monkeypatch.chdir("/")
    assert sum(batch.num_rows for batch in reader.read(part)) == node_table(here).num_rows
    here.rename(tmp_path / "elsewhere")
    with pytest.raises(StoreError, match=r"holds nothing on .*, and the log of node n1 where"):
        list(reader.read(part))
    there.rename(here)
    with pytest.raises(StoreError, match=r"holds the log of node n2 on .*, and the log of node n1 where"):
        list(reader.read(part))


def test_a_path_without_nodes_and_a_node_named_twice_are_refused(cluster: Path, tmp_path: Path) -> None:
    with pytest.raises(PipelineError, match="neither a node's directory nor"):
        read_with(tmp_path, [])
    with pytest.raises(PipelineError, match="both of node n1"):
        read_with(cluster, [], paths=f'["{cluster}/a"]')
    with pytest.raises(PipelineError, match="No such file"):
        read_with(tmp_path / "nowhere", [])


def test_nothing_to_apply_leaves_a_batch_as_it_is(cluster: Path) -> None:
    batch = whole(cluster).to_batches()[0]
    assert Selection().apply(batch) is batch
