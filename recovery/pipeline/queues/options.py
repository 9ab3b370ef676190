"""The options of ``format("txha-queue")``, checked. ``docs/spark_queues.md`` has the same table for people."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar
from urllib.parse import unquote, urlsplit

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator
from pydantic.alias_generators import to_camel

from recovery.dtx.errors import ProgrammingError
from recovery.dtx.hosts import checked_hosts, urls_in
from recovery.pipeline.errors import PipelineError, nearest

SPARKS_OWN = {"queryname"}
"""What Spark adds to the options of a writer."""
STREAMS_ONLY = {"new_record", "checkpoint_location"}

T = TypeVar("T", bound="Options")


class Options(BaseModel):
    """As ``option(name, value)`` of a reader or writer gives them: names as Spark's own, in any case.

    ``url``          of a node, or of several of one cluster with commas
    ``patience``     seconds for which a lost broker is looked for, or another driver's lock is waited for
    """

    model_config = ConfigDict(frozen=True, alias_generator=to_camel, populate_by_name=True, extra="ignore")

    url: str = "amqp://guest:guest@127.0.0.1:5672/"
    patience: float = Field(60.0, gt=0)

    @property
    def hosts(self) -> list[str]:
        """The urls."""
        return urls_in(self.url)

    @field_validator("url")
    @classmethod
    def _check_url(cls, url: str) -> str:
        try:
            checked_hosts(urls_in(url))
        except ProgrammingError as error:
            raise ValueError(str(error)) from None
        return url


class SinkOptions(Options):
    """``queue``            where rows go that have no routing key of their own
    ``exchange``         the same for exchanges; the default one has the name ""
    ``mandatory``        whether a row that no queue takes fails the batch
    ``rows_per_branch``  a partition of more rows is prepared in several branches
    ``timeout``          seconds in which a branch must be prepared; the broker's ``dtx.max_timeout`` limits it
    ``new_record``       whether a query that is not at its beginning may have no record at the broker
    ``checkpoint_location``  the query's, as Spark has it: what was aborted is found by what it says of the query
    """

    queue: str = ""
    exchange: str = ""
    mandatory: bool = True
    rows_per_branch: int = Field(50_000, gt=0, lt=1 << 20)
    timeout: int = Field(600, ge=0)
    new_record: bool = False
    checkpoint_location: str = ""

    def query(self) -> str | None:
        """The id of the query whose checkpoint this is; None without one, or if it is in no directory of this machine.

        Spark tells it to tasks, and not to the driver's half of a sink.
        """
        try:
            place = Path(unquote(urlsplit(self.checkpoint_location).path), "metadata")
            return str(json.loads(place.read_bytes())["id"])
        except (OSError, ValueError, KeyError):
            return None


class QueueSourceOptions(Options):
    """``queue``                   what is consumed
    ``max_messages_per_batch``  at most so many messages make a micro-batch
    ``partitions``              of a micro-batch
    ``fail_on_data_loss``       whether a batch that is to be read again, and of which messages are gone, is an error
    """

    queue: str = Field(min_length=1)
    max_messages_per_batch: int = Field(10_000, gt=0, le=30_000)
    partitions: int = Field(2, gt=0)
    fail_on_data_loss: bool = True


def options_of(kind: type[T], given: Mapping[str, str]) -> T:
    """The options that Spark hands over. Raises PipelineError, with what is wrong, also for one that is not known."""
    names = {(field.alias or name).lower(): name for name, field in kind.model_fields.items()}
    if unknown := [key for key in given if key.lower() not in names.keys() | SPARKS_OWN]:
        there = sorted(field.alias or name for name, field in kind.model_fields.items())
        raise PipelineError(
            f"txha-queue has no option {unknown[0]} here; the nearest is {nearest(unknown[0], there)}, and there are "
            f"{', '.join(there)}"
        )
    try:
        return kind(**{names[key.lower()]: value for key, value in given.items() if key.lower() in names})
    except ValidationError as error:
        first = error.errors()[0]
        name = to_camel(str(first["loc"][0]))
        message = first["msg"].removeprefix("Value error, ")
        raise PipelineError(f"option {name} of txha-queue: {message[:1].lower()}{message[1:]}") from None


def check_batch(options: SinkOptions) -> None:
    """Raises PipelineError for what has a meaning for streaming queries only."""
    if given := STREAMS_ONLY & options.model_fields_set:
        raise PipelineError(f"option {to_camel(min(given))} of txha-queue is for streaming queries, not for batch jobs")
