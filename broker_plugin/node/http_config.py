"""The table ``http`` of a configuration: where operators and what collects metrics reach a node by HTTP."""

from __future__ import annotations

from pydantic import Field

from broker_plugin.node.timing import Section


class Http(Section):
    """The door for operators, which wants a login, and beside it a port for metrics, which wants none."""

    host: str = Field("127.0.0.1", min_length=1)
    port: int = Field(15672, ge=1, le=65535)
    metrics_host: str = Field("127.0.0.1", min_length=1)
    metrics_port: int | None = Field(None, ge=1, le=65535)

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """Where it listens."""
        metrics = [] if self.metrics_port is None else [(self.metrics_host, self.metrics_port)]
        return [(self.host, self.port), *metrics]
