"""The record of a query: the last batch that was decided, and the branches that are the batch. One message."""

from __future__ import annotations

import msgspec

from recovery.pipeline.errors import PipelineError
from recovery.pipeline.queues.names import Batch


class BatchRecord(msgspec.Struct, frozen=True):
    """``branches`` are committed, whatever crashes, and nothing else of this or an earlier batch ever is.

    ``before``: the batch that was decided before; None if this is the first.
    """

    query: str
    batch: int
    branches: tuple[str, ...]
    before: int | None = None

    @property
    def decided(self) -> Batch:
        """The batch."""
        return Batch(self.query, self.batch)

    def encoded(self) -> bytes:
        """As the body of a message: JSON, for the operator who looks at it."""
        return msgspec.json.encode(self)


def decoded(body: bytes) -> BatchRecord:
    """What ``encoded`` wrote. Raises PipelineError."""
    try:
        return msgspec.json.decode(body, type=BatchRecord)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise PipelineError(f"what stands in the place of a query's record is none: {error}") from error
