"""What a row is published as, and which rows and options are refused."""

from __future__ import annotations

import pika
import pyarrow as pa
import pytest

from recovery.pipeline.errors import PipelineError
from recovery.pipeline.queues.batch_record import BatchRecord, decoded
from recovery.pipeline.queues.names import Batch, batch_of, new_branch, record_xid
from recovery.pipeline.queues.options import QueueSourceOptions, SinkOptions, check_batch, options_of
from recovery.pipeline.queues.queue_intake import HIGHEST_PREFETCH
from recovery.pipeline.queues.rows import RowToPublish, check_columns, publishes
from txobserver.xid import Xid


def published(options: SinkOptions | None = None, **columns: object) -> list[RowToPublish]:
    return list(publishes(pa.record_batch(columns), options or SinkOptions(queue="q")))


def test_a_row_goes_where_it_says_or_where_the_options_say() -> None:
    options = SinkOptions(queue="q", exchange="e")
    rows = published(options, body=["1", "2"], routing_key=["k", None], exchange=[None, "f"])
    assert [each[:3] for each in rows] == [("e", "k", b"1"), ("f", "q", b"2")]
    assert published(body=[b"\x00"])[0][:3] == ("", "q", b"\x00")


def test_properties_are_kept_and_columns_override_them() -> None:
    given = pika.BasicProperties(priority=3, message_id="old", headers={"n": 1})
    raw = b"".join(given.encode())
    headers = pa.array([[("a", "b")], None], pa.map_(pa.string(), pa.string()))
    one, other = published(body=["1", "2"], properties=[raw, raw], message_id=["new", None], headers=headers)
    assert (one.properties.priority, one.properties.message_id, one.properties.headers) == (3, "new", {"a": "b"})
    assert (other.properties.message_id, other.properties.headers) == ("old", {"n": 1})
    assert one.properties.delivery_mode == other.properties.delivery_mode == 2


def test_a_row_is_not_told_twice_where_to_go() -> None:
    """Where a routing key is null, the column queue would be passed over, and the row be dropped or returned."""
    with pytest.raises(PipelineError, match="leave one out"):
        check_columns(["body", "queue", "routing_key"], SinkOptions(queue="q"))
    check_columns(["body", "queue"], SinkOptions())
    check_columns(["body", "routing_key"], SinkOptions())


def test_a_row_without_a_body() -> None:
    with pytest.raises(PipelineError, match="no body"):
        published(body=["1", None])


def test_options_are_found_in_any_case() -> None:
    options = options_of(QueueSourceOptions, {"QUEUE": "q", "maxmessagesperbatch": "7"})
    assert (options.queue, options.max_messages_per_batch) == ("q", 7)
    assert options_of(SinkOptions, {"url": "amqp://a/, amqp://b/"}).hosts == ["amqp://a/", "amqp://b/"]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "option queue of txha-queue: field required"),
        ({"queue": ""}, "option queue"),
        ({"queue": "q", "partitions": "0"}, "option partitions"),
        ({"queue": "q", "url": "amqp://a/,nonsense"}, "option url of txha-queue: 'amqp://a/,nonsense' is no url"),
    ],
)
def test_options_that_cannot_be(given: dict[str, str], said: str) -> None:
    with pytest.raises(PipelineError, match=said):
        options_of(QueueSourceOptions, given)


@pytest.mark.parametrize("name", ["maxMessagePerBatch", "path", "timeout"])
def test_an_option_without_effect_is_refused(name: str) -> None:
    """Misspelt, or of something else: Spark hands over whatever it is given."""
    with pytest.raises(PipelineError, match=f"no option {name} here; the nearest is .*, and there are failOn"):
        options_of(QueueSourceOptions, {"queue": "q", name: "1"})
    assert options_of(SinkOptions, {"queryName": "Spark's own"}) == SinkOptions()
    with pytest.raises(PipelineError, match="no option rowPerBranch here; the nearest is rowsPerBranch, and there are"):
        options_of(SinkOptions, {"rowPerBranch": "5"})


def test_two_batches_and_what_is_not_settled_have_room_in_the_prefetch() -> None:
    """One that Spark reads again, and the next one; a queue's consumer can hold no more than ``HIGHEST_PREFETCH``."""
    most = options_of(QueueSourceOptions, {"queue": "q", "maxMessagesPerBatch": "30000"}).max_messages_per_batch
    assert 2 * most < HIGHEST_PREFETCH
    with pytest.raises(PipelineError, match=r"option maxMessagesPerBatch of .* less than or equal to 30000"):
        options_of(QueueSourceOptions, {"queue": "q", "maxMessagesPerBatch": "30001"})


@pytest.mark.parametrize("name", ["newRecord", "checkpointLocation"])
def test_an_option_of_streams_is_refused_by_a_batch_job(name: str) -> None:
    with pytest.raises(PipelineError, match=f"option {name} of txha-queue is for streaming queries"):
        check_batch(options_of(SinkOptions, {name: "true"}))
    check_batch(options_of(SinkOptions, {"queue": "q"}))


def test_no_password_is_told_of_an_url_that_cannot_be() -> None:
    with pytest.raises(PipelineError) as told:
        options_of(SinkOptions, {"url": "amqp://me:hun/t@er2@host:1/"})
    assert "hun" not in str(told.value) and "er2" not in str(told.value)


def test_names_lead_back_to_their_batch() -> None:
    batch = Batch("53a14e11-7d0a-4b1b-9c5e-a7a4b1d2c3e4", 9_000_000_000_000)
    assert batch_of(batch.branch(new_branch(1000, 3))) == batch
    assert batch_of(record_xid(batch.query)) is None
    assert batch_of(Xid(1, batch.globally.gtrid, b"")) is None
    assert new_branch(0, 0) != new_branch(0, 0)


def test_a_record_is_read_back_and_anything_else_is_refused() -> None:
    record = BatchRecord("q", 3, ("a", "b"), 2)
    assert decoded(record.encoded()) == record
    with pytest.raises(PipelineError, match="is none"):
        decoded(b"{}")
