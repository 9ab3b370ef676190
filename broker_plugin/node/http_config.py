"""The table ``http`` of a configuration: where operators and what collects metrics reach a node by HTTP."""

from __future__ import annotations

from pydantic import Field, model_validator

from broker_plugin.node.timing import HostName, Section


class Http(Section):
    """The door for operators, which wants a login, and beside it a port for metrics, which wants none."""

    host: HostName = "127.0.0.1"
    port: int = Field(15672, ge=1, le=65535)
    metrics_host: HostName = "127.0.0.1"
    metrics_port: int | None = Field(None, ge=1, le=65535)
    tls: bool = False
    metrics_tls: bool = False

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """Where it listens."""
        metrics = [] if self.metrics_port is None else [(self.metrics_host, self.metrics_port)]
        return [(self.host, self.port), *metrics]

    @property
    def secured(self) -> list[str]:
        """The keys by which a port is encrypted."""
        return [f"http.{key}" for key in ("tls", "metrics_tls") if getattr(self, key)]

    @model_validator(mode="after")
    def _each_has_an_effect(self) -> Http:
        if self.metrics_tls and self.metrics_port is None:
            raise ValueError("metrics_tls has no effect without metrics_port")
        return self
