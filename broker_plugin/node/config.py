"""Configuration of a node: one model. Defaults < TOML file < environment (TXHA_…) < options; the later wins."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    Field,
    PlainValidator,
    SecretStr,
    ValidationError,
    model_validator,
)
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict

from broker_plugin.amqp.alarms import LEAST_CLOSED
from broker_plugin.compiled import SWITCH
from broker_plugin.coordination.address import store_at
from broker_plugin.coordination.coordination_process import ANSWER_SECONDS
from broker_plugin.coordination.etcd.place import PASSWORD as ETCD_PASSWORD
from broker_plugin.embedded.memory_budget import MemoryMarks
from broker_plugin.node.amqp_config import MOST_LONG, Listener
from broker_plugin.node.amqp_config import Amqp as Amqp
from broker_plugin.node.http_config import Http
from broker_plugin.node.peer_tls import KEY as PEER_TLS
from broker_plugin.node.peer_tls import PeerTls, stands_in_for_the_secret
from broker_plugin.node.sources import ENVIRONMENT, Named, blamed, sentence, sources
from broker_plugin.node.sources import ConfigError as ConfigError
from broker_plugin.node.timing import MOST_SECONDS, HostName, NodeName, Section, Timing, with_default_lease
from broker_plugin.node.tls_config import Tls, check_tls
from ha.membership.members import majority
from ha.membership.record import CoordinationError, RecordStore, Served
from ha.membership.watchdog import Renewals
from ha.settings import Settings
from recovery.reader.node_connection import READ_SECRET
from recovery.secret_file import MARK
from txobserver.actions import LONGEST_NAME
from txobserver.frames import MAX_PAYLOAD
from txobserver.ids import MAX_OPEN_BYTES, MAX_TRANSACTION_BYTES, MAX_TRANSACTION_EVENTS
from txobserver.invariants import CHECKS
from txobserver.work_limits import WorkLimits

INVARIANTS = "TXHA_CHECK_INVARIANTS"
"""Environment: 1 for a node that checks its invariants (``txobserver.invariants``), 0 for one that does not."""
_OF_TESTS = {"TXHA_CRASH_POINT", "TXHA_AMQP_URL", "TXHA_TEST_HOST", "TXHA_TEST_SERVERS"}
_NOT_SETTINGS = {*_OF_TESTS, SWITCH, INVARIANTS, READ_SECRET, ETCD_PASSWORD}
SECRET_FILE = "cluster.secret"
"""Where the secret of the cluster stands if the configuration does not say: beside the TOML file"""


MOST_CALLS = 10_000
"""That the history of cluster calls may hold: each snapshot carries it, and each lookup goes through it."""


class Address(Section):
    """Where this node listens for other nodes and readers of its log, and by what secrets these prove themselves."""

    host: HostName = "127.0.0.1"
    port: int = Field(ge=1, le=65535)
    secret: SecretStr | None = None
    read_secret: SecretStr | None = None
    tls: PeerTls = False


class PeerNode(Section):
    """Another node of the cluster."""

    name: NodeName
    host: HostName = "127.0.0.1"
    port: int = Field(ge=1, le=65535)


class StoreConfig(Section):
    """The log, the queue state, and the disk that they are on."""

    retention_seconds: float = Field(3600.0, ge=0, le=MOST_SECONDS)
    segment_bytes: int = Field(64 << 20, ge=4096)
    checkpoint_bytes: int = Field(64 << 20, ge=4096)
    checkpoint_seconds: float = Field(5.0, gt=0, le=MOST_SECONDS)
    disk_free_bytes: int = Field(512 << 20, ge=0)


def _of_high(part: float) -> Callable[[dict[str, Any]], int]:
    return lambda values: int(part * values.get("high_bytes", 0))


class Memory(Section):
    """What clients may make a node hold in memory, in bytes."""

    high_bytes: int = Field(768 << 20, ge=4 << 20)
    low_bytes: int = Field(default_factory=_of_high(0.75), ge=0, description="three quarters of `memory.high_bytes`")
    hard_bytes: int = Field(default_factory=_of_high(1.5), ge=0, description="one and a half of `memory.high_bytes`")
    connection_bytes: int = Field(default_factory=_of_high(0.5), ge=0, description="half of `memory.high_bytes`")
    declared_bytes: int = Field(256 << 20, ge=1 << 20)

    @model_validator(mode="after")
    def _in_order(self) -> Memory:
        if not self.low_bytes < self.high_bytes < self.hard_bytes:
            raise ValueError("low_bytes must be less than high_bytes, and high_bytes less than hard_bytes")
        if not LEAST_CLOSED <= self.connection_bytes <= self.hard_bytes:
            raise ValueError(f"connection_bytes must be at least {LEAST_CLOSED}, and at most hard_bytes")
        return self


class OpenTransactions(Section):
    """How much clients may have open in transactions and branches. Bytes are those of messages."""

    max_events: int = Field(MAX_TRANSACTION_EVENTS, ge=1, le=MAX_TRANSACTION_EVENTS)
    max_bytes: int = Field(MAX_TRANSACTION_BYTES, ge=1, le=MAX_PAYLOAD)
    connection_bytes: int = Field(512 << 20, ge=1)
    open_bytes: int = Field(MAX_OPEN_BYTES, ge=1)


class Dtx(Section):
    """Branches of distributed transactions."""

    default_timeout: int = Field(60, ge=0, le=MOST_LONG, description="seconds; 0 for none")
    max_timeout: int = Field(3600, ge=1, le=MOST_LONG, description="seconds")


class HostBroker(Section):
    """A broker in a process of its own, whose transactions this node replicates, in place of the embedded broker.

    It connects to ``socket``, a path that is relative to the node's directory.
    """

    socket: Named


def _majority(values: dict[str, Any]) -> int:
    return majority(1 + len(values.get("peers", ())))


def _half_of_the_ticket(values: dict[str, Any]) -> float:
    timing = values.get("timing")
    return timing.ticket_timeout / 2 if isinstance(timing, Timing) else 0.0


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

    name: NodeName
    cluster: str = Field(min_length=1)
    dir: Named
    coordination: Coordinated
    amqp: Amqp = Amqp()
    peer: Address
    peers: list[PeerNode] = []
    timing: Timing = Timing()
    store: StoreConfig = StoreConfig()
    memory: Memory = Memory()
    transactions: OpenTransactions = OpenTransactions()
    dtx: Dtx = Dtx()
    host: HostBroker | None = None
    http: Http | None = None
    tls: Tls | None = None
    min_ready: int = Field(default_factory=_majority, ge=1, description="a majority from three nodes on, else `1`")
    outcomes_kept: int = Field(100_000, ge=1)
    outcome_seconds: float = Field(86_400.0, gt=0, le=MOST_SECONDS)
    calls_kept: int = Field(100, ge=1, le=MOST_CALLS)
    hooks: dict[str, Named] = {}
    hook_seconds: float = Field(
        default_factory=_half_of_the_ticket, gt=0, description="half of `timing.ticket_timeout`"
    )
    listeners: dict[str, Listener] = {}
    backup_clients: Literal["proxy", "refuse"] = "proxy"
    unsupported: Literal["refuse", "warn"] = "refuse"
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

    _default_lease = model_validator(mode="before")(with_default_lease)

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
        own = [*self.amqp.addresses, (self.peer.host, self.peer.port)]
        own += [(each.host, each.port) for each in self.listeners.values()]
        own += [] if self.http is None else self.http.addresses
        addresses = [*own, *((peer.host, peer.port) for peer in self.peers)]
        for host, port in addresses:
            if addresses.count((host, port)) > 1:
                raise ValueError(f"{host}:{port} is given twice; clients and each node need an address of their own")
        return self

    @model_validator(mode="after")
    def _tls_is_whole(self) -> NodeConfig:
        secured = [f"listeners.{name}.tls" for name, each in self.listeners.items() if each.tls]
        others = [*([] if self.http is None else self.http.secured), *([] if self.peer.tls is False else [PEER_TLS])]
        check_tls(self.tls, self.amqp, secured, others)
        if self.host is not None and (given := secured or ["amqp.tls_port"] * (self.amqp.tls_port is not None)):
            raise ValueError(f"{given[0]} cannot be with a host broker: its clients would be passed on to it in clear")
        return self

    @model_validator(mode="after")
    def _hooks_are_in_time(self) -> NodeConfig:
        if not self.hook_seconds < self.timing.ticket_timeout:
            raise ValueError(
                "hook_seconds must be less than timing.ticket_timeout: a call whose hook takes longer is never recorded"
            )
        for table, names in (("hooks", self.hooks), ("listeners", self.listeners)):
            if wrong := [name for name in names if not name or len(name.encode()) > LONGEST_NAME]:
                raise ValueError(f"{table}: a name has 1 to {LONGEST_NAME} bytes, not {len(wrong[0].encode())}")
        return self

    def core_settings(self) -> Settings:
        """What the state machines need of it."""
        timing, store = self.timing, self.store
        return Settings(
            lease_ttl=timing.lease_ttl,
            lease_before=timing.lease_before(self.coordination),
            renew_every=timing.renew_every,
            prepare_timeout=timing.prepare_timeout,
            backup_timeout=timing.backup_timeout,
            link_down_grace=timing.link_down_grace,
            beat_every=timing.beat_every,
            link_deadline=timing.link_deadline,
            min_ready=self.min_ready,
            follow_members="min_ready" not in self.model_fields_set,
            checkpoint_bytes=store.checkpoint_bytes,
            checkpoint_every=store.checkpoint_seconds,
            outcomes_kept=self.outcomes_kept,
            outcome_seconds=self.outcome_seconds,
            work=self.work_limits(),
            call_retry=timing.call_retry,
            drain_seconds=timing.drain_seconds,
            ticket_timeout=timing.ticket_timeout,
            calls_kept=self.calls_kept,
        )

    def work_limits(self) -> WorkLimits:
        """How much may be open in transactions."""
        given = self.transactions
        return WorkLimits(given.max_events, given.max_bytes, given.connection_bytes, given.open_bytes)

    def serve_coordination(self) -> Served:
        """The coordination store, for a node's lifetime. Raises ConfigError."""
        timing = self.timing
        renewals = Renewals(timing.renew_every, timing.hung_after, self.host is None)
        try:
            return self.coordination.serve(self.cluster, max(ANSWER_SECONDS, timing.lease_ttl), renewals)
        except OSError as error:
            raise ConfigError(f"no memory can be shared with the coordination process: {error.strerror}") from error

    def memory_marks(self) -> MemoryMarks:
        """How much memory clients may take."""
        given = self.memory
        marks = (given.low_bytes, given.high_bytes, given.hard_bytes, given.connection_bytes, given.declared_bytes)
        return MemoryMarks(*marks)


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
    except RecursionError:
        raise ConfigError(f"{path} is nested too deep") from None
    peer = values.get("peer")
    variables = _settings_in(os.environ if environment is None else environment)
    if isinstance(peer, dict) and not stands_in_for_the_secret(values, variables, flags or {}):
        peer.setdefault("secret", MARK + SECRET_FILE)
    found = sources(NodeConfig, values, variables, flags or {}, path.parent.absolute())
    try:
        return NodeConfig(_build_sources=(found, {}))
    except ValidationError as error:
        source = blamed(error, path, variables, flags or {})
        raise ConfigError(f"{source}: {sentence(error, NodeConfig)}") from None


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
    for name, path in config.hooks.items():
        if not (path.is_absolute() and path.is_file() and os.access(path, os.X_OK)):
            raise ConfigError(f"hooks.{name}: {path} is not the whole path of an executable file")
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
