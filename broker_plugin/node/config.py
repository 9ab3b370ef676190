"""Configuration of a node: one model. Defaults < TOML file < environment (TXHA_…) < options; the later wins."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    PlainValidator,
    SecretStr,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from broker_plugin.compiled import SWITCH
from broker_plugin.coordination.address import store_at
from broker_plugin.node.sources import ENVIRONMENT, sentence, sources
from broker_plugin.node.sources import ConfigError as ConfigError
from broker_plugin.secret_file import MARK, SecretFileError, read_secret
from ha.membership.record import CoordinationError, RecordStore
from ha.settings import Settings
from txobserver.invariants import CHECKS

INVARIANTS = "TXHA_CHECK_INVARIANTS"
"""Environment: 1 for a node that checks its invariants (``txobserver.invariants``), 0 for one that does not."""
_NOT_SETTINGS = {"TXHA_CRASH_POINT", "TXHA_AMQP_URL", "TXHA_TEST_SERVERS", SWITCH, INVARIANTS}


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, hide_input_in_errors=True)


class Amqp(_Section):
    """Where and how clients connect."""

    host: str = "127.0.0.1"
    port: int = Field(5672, ge=1, le=65535)
    heartbeat: int = Field(60, ge=0, le=65535, description="seconds")
    frame_max: int = Field(131072, ge=4096)
    channel_max: int = Field(2047, ge=1, le=65535)
    max_connections: int = Field(10_000, ge=1)
    users: dict[str, SecretStr] = {"guest": SecretStr("guest")}
    users_file: Path | None = None

    @field_validator("users", mode="before")
    @classmethod
    def _read_files(cls, users: Any) -> Any:
        """``@FILE`` stands for what is in that file, and ``@@`` for a password that begins with ``@``."""
        return {user: _secret(given) for user, given in users.items()} if isinstance(users, dict) else users

    def passwords(self) -> dict[str, str]:
        """The users with their passwords in clear, for those who compare them."""
        return {user: secret.get_secret_value() for user, secret in self.users.items()}


class Address(_Section):
    """Where this node listens for other nodes."""

    host: str = "127.0.0.1"
    port: int = Field(ge=1, le=65535)


class PeerNode(_Section):
    """Another node of the cluster."""

    name: str = Field(min_length=1)
    host: str = "127.0.0.1"
    port: int = Field(ge=1, le=65535)


SHORTEST = 0.1
"""Seconds. A node looks at its clock every 0.02 s (``shell.TICK``), and later when it is busy. What is to be shorter
than a few of these steps cannot be kept: every backup would be silent, or no candidate would see a lease end."""


class Timing(_Section):
    """Seconds."""

    lease_ttl: float = Field(1.0, gt=0)
    renew_every: float = Field(0.2, gt=0)
    prepare_timeout: float = Field(3.0, gt=0)
    backup_timeout: float = Field(5.0, gt=0)
    link_down_grace: float = Field(0.2, ge=0)

    @model_validator(mode="after")
    def _renew_in_time(self) -> Timing:
        for name in ("renew_every", "prepare_timeout", "backup_timeout"):
            if getattr(self, name) < SHORTEST:
                raise ValueError(
                    f"{name} must be at least {SHORTEST:g}: a node looks at its clock every 0.02 s, and less often "
                    "when it is busy"
                )
        if self.renew_every * 2 > self.lease_ttl:
            raise ValueError("renew_every must be at most half of lease_ttl")
        return self


class StoreConfig(_Section):
    """The log and the queue state."""

    retention_seconds: float = Field(3600.0, ge=0)
    segment_bytes: int = Field(64 << 20, ge=4096)
    checkpoint_bytes: int = Field(64 << 20, ge=4096)
    checkpoint_seconds: float = Field(5.0, gt=0)


class Dtx(_Section):
    """Branches of distributed transactions."""

    default_timeout: int = Field(60, ge=0, description="seconds; 0 for none")
    max_timeout: int = Field(3600, ge=1, description="seconds")


def _secret(given: Any) -> Any:
    if not isinstance(given, str) or not given.startswith(MARK):
        return given
    if given.startswith(MARK * 2):
        return given[len(MARK) :]
    try:
        return read_secret(Path(given[len(MARK) :]), "one password, in one line")
    except SecretFileError as error:
        raise ValueError(f"{error}; a password that begins with {MARK} is written with {MARK * 2}") from None


def _majority(values: dict[str, Any]) -> int:
    """From three nodes on a majority, so that one of them can be lost without what was committed; else 1."""
    nodes = 1 + len(values.get("peers", ()))
    return nodes // 2 + 1 if nodes > 2 else 1


def _store_at(address: object) -> RecordStore:
    if isinstance(address, RecordStore):
        return address
    if not isinstance(address, str | Path):
        raise ValueError("must be a text: the address of a coordination store")
    return store_at(str(address))


Coordinated = Annotated[RecordStore, PlainValidator(_store_at)]
"""In a configuration: an address (``broker_plugin.coordination.address``)"""


class NodeConfig(BaseSettings):
    """Everything a node needs to know. Made directly, it is of what it is given; ``load_config`` reads the sources."""

    model_config = SettingsConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, hide_input_in_errors=True)

    name: str = Field(min_length=1)
    cluster: str = Field(min_length=1)
    dir: Path
    coordination: Coordinated
    amqp: Amqp = Amqp()
    peer: Address
    peers: list[PeerNode] = []
    timing: Timing = Timing()
    store: StoreConfig = StoreConfig()
    dtx: Dtx = Dtx()
    min_ready: int = Field(default_factory=_majority, ge=1, description="a majority from three nodes on, else `1`")
    outcomes_kept: int = Field(100_000, ge=1)
    outcome_seconds: float = Field(86_400.0, gt=0)
    backup_clients: Literal["proxy", "refuse"] = "proxy"
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: Literal["text", "json"] = "text"

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Nothing but what it is given: ``load_config`` says which variables and which file take part."""
        return (init_settings,)

    @model_validator(mode="after")
    def _names_differ(self) -> NodeConfig:
        names = [self.name, *(peer.name for peer in self.peers)]
        if len(set(names)) != len(names):
            raise ValueError("every node of a cluster needs a name of its own")
        if self.min_ready > len(names):
            raise ValueError(f"min_ready is {self.min_ready} in a cluster of {len(names)}")
        return self

    @model_validator(mode="after")
    def _addresses_differ(self) -> NodeConfig:
        own = [(self.amqp.host, self.amqp.port), (self.peer.host, self.peer.port)]
        addresses = [*own, *((peer.host, peer.port) for peer in self.peers)]
        for host, port in addresses:
            if addresses.count((host, port)) > 1:
                raise ValueError(f"{host}:{port} is given twice; clients and each node need an address of their own")
        return self

    def core_settings(self) -> Settings:
        """What the state machines need of it."""
        timing, store = self.timing, self.store
        return Settings(
            lease_ttl=timing.lease_ttl,
            renew_every=timing.renew_every,
            prepare_timeout=timing.prepare_timeout,
            backup_timeout=timing.backup_timeout,
            link_down_grace=timing.link_down_grace,
            min_ready=self.min_ready,
            checkpoint_bytes=store.checkpoint_bytes,
            checkpoint_every=store.checkpoint_seconds,
            outcomes_kept=self.outcomes_kept,
            outcome_seconds=self.outcome_seconds,
        )


def load_config(
    path: Path, flags: Mapping[str, str] | None = None, environment: Mapping[str, str] | None = None
) -> NodeConfig:
    """The configuration of a node. ``flags`` are dotted names (``timing.lease_ttl``). Raises ConfigError."""
    try:
        text = path.read_text()
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from error
    return parse_config(text, path, flags, environment)


def parse_config(
    text: str, path: Path, flags: Mapping[str, str] | None = None, environment: Mapping[str, str] | None = None
) -> NodeConfig:
    """As ``load_config``, of a text that need not have been written yet. ``path`` is for messages only."""
    try:
        values = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{path} is not valid TOML: {error}") from error
    variables = _settings_in(os.environ if environment is None else environment)
    found = sources(NodeConfig, values, variables, flags or {}, path.parent.absolute())
    try:
        return NodeConfig(_build_sources=(found, {}))
    except ValidationError as error:
        raise ConfigError(f"{path}: {sentence(error, NodeConfig)}") from None


def check_outcomes(kept: int, seconds: float) -> None:
    """Refuse what no node could be told of how many outcomes are remembered, and for how long. Raises ConfigError."""
    needed = {"name": "any", "cluster": "any", "dir": ".", "coordination": ".", "peer": {"port": 1}}
    try:
        NodeConfig.model_validate({**needed, "outcomes_kept": kept, "outcome_seconds": seconds})
    except ValidationError as error:
        raise ConfigError(sentence(error, NodeConfig)) from error


def check_places(config: NodeConfig) -> None:
    """Refuse places that cannot be written, before anything is. Raises ConfigError."""
    store = config.dir
    if store.exists() and not store.is_dir():
        raise ConfigError(f"dir: {store} is not a directory")
    try:
        config.coordination.check_writable()
    except CoordinationError as error:
        raise ConfigError(f"coordination: {error}") from error


def switch_invariants(environment: Mapping[str, str]) -> None:
    """Check invariants in this process, if its environment says so. Raises ConfigError."""
    value = environment.get(INVARIANTS, "0")
    if value not in ("0", "1"):
        raise ConfigError(f"{INVARIANTS} is 0 or 1, not {value!r}")
    if value == "1":
        try:
            CHECKS.switch_on()
        except RuntimeError as error:
            raise ConfigError(f"{INVARIANTS}: {error}") from None


def parse_settings(settings: list[str], option: str = "--set") -> dict[str, str]:
    """``key=value`` texts, given with ``option``, as ``load_config`` takes flags. Raises ConfigError."""
    pairs = {}
    for setting in settings:
        key, separator, value = setting.partition("=")
        if not separator:
            raise ConfigError(f"{option} wants key=value, not {setting!r}")
        pairs[key.strip()] = value.strip()
    return pairs


def _settings_in(environment: Mapping[str, str]) -> dict[str, str]:
    """The variables that are settings of a node."""
    return {
        name: value for name, value in environment.items() if name.startswith(ENVIRONMENT) and name not in _NOT_SETTINGS
    }
