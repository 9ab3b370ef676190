"""The table ``amqp`` of a configuration, and those of ``listeners``: where and how clients connect."""

from __future__ import annotations

from typing import Any

from pydantic import Field, SecretStr, field_validator, model_validator

from broker_plugin.node.sources import Named, password_of
from broker_plugin.node.timing import MOST_PATIENCE, SHORTEST, HostName, Section
from broker_plugin.tls.contexts import Asking
from broker_plugin.tls.peer_certificate import LoginFrom

MOST_LONG = (1 << 32) - 1
"""The largest number in a field of four octets, as which clients are told it"""


def _host(values: dict[str, Any]) -> str:
    return str(values.get("host", ""))


class Amqp(Section):
    """Where and how clients connect."""

    host: HostName = "127.0.0.1"
    port: int = Field(5672, ge=1, le=65535)
    plain: bool = True
    tls_host: HostName = Field(default_factory=_host, description="that of `amqp.host`")
    tls_port: int | None = Field(None, ge=1, le=65535)
    client_certificates: Asking = "ignore"
    certificate_login_from: LoginFrom = "common_name"
    heartbeat: int = Field(60, ge=0, le=65535, description="seconds")
    frame_max: int = Field(131072, ge=4096, le=MOST_LONG)
    channel_max: int = Field(2047, ge=1, le=65535)
    max_connections: int = Field(10_000, ge=1)
    max_unauthenticated: int = Field(2000, ge=1)
    max_unauthenticated_per_address: int = Field(1000, ge=1)
    login_seconds: float = Field(10.0, ge=SHORTEST, le=MOST_PATIENCE, description="seconds")
    users: dict[str, SecretStr] = Field({"guest": SecretStr("guest")})
    users_file: Named | None = None

    @field_validator("users", mode="before")
    @classmethod
    def _read_files(cls, users: Any) -> Any:
        """``@FILE`` stands for what is in that file, and ``@@`` for a password that begins with ``@``."""
        if not isinstance(users, dict):
            return users
        if "" in users or "" in users.values():
            raise ValueError("a user has a name and a password: neither may be empty")
        return {user: password_of(given) for user, given in users.items()}

    def passwords(self) -> dict[str, str]:
        """The users with their passwords in clear, for those who compare them."""
        return {user: secret.get_secret_value() for user, secret in self.users.items()}

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """Where it listens."""
        plain = [(self.host, self.port)] if self.plain else []
        return plain if self.tls_port is None else [*plain, (self.tls_host, self.tls_port)]

    @property
    def reached(self) -> tuple[str, int]:
        """Where another node that passes clients on connects, unless it knows better."""
        return self.addresses[0]

    @model_validator(mode="after")
    def _each_has_an_effect(self) -> Amqp:
        given = self.model_fields_set
        if self.tls_port is None and "tls_host" in given:
            raise ValueError("tls_host has no effect without tls_port")
        if self.tls_port is None and not self.plain:
            raise ValueError("plain is false and there is no tls_port: no client could connect")
        if not self.plain and "port" in given:
            raise ValueError("port has no effect where plain is false")
        if self.client_certificates == "ignore" and "certificate_login_from" in given:
            raise ValueError("certificate_login_from has no effect where client_certificates is ignore")
        return self


class Listener(Section):
    """A listener for clients that cluster calls open and close."""

    host: HostName = "127.0.0.1"
    port: int = Field(ge=1, le=65535)
    tls: bool = False
