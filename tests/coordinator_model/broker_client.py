"""pika's connections and channels, to the model brokers: the product's own client stands on them."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

from pika.exceptions import ChannelClosedByBroker, ChannelWrongStateError, StreamLostError

from recovery.dtx.conversation import Lost, Refused
from recovery.dtx.tagged import TaggedChannel, Tags
from recovery.dtx.with_pika import DtxConnection
from tests.coordinator_model.brokers import Cluster, ServerChannel
from tests.coordinator_model.pg_client import Broken, Way
from txobserver.dtx_wire import DtxMethod

Reach = Callable[[str], "tuple[Cluster, Way]"]
"""The cluster behind a host's name, and the way to it. Raises Broken."""


class ModelInner(TaggedChannel):
    """What is inside of a channel of pika's: the product's own numbering of tags, and the broker behind it."""

    is_open = True

    def __init__(self, server: ServerChannel, tags: Tags) -> None:
        self.server = server
        self._tags = tags
        self._before = tags.highest
        self._open_tags: dict[int, None] = {}

    def _raise_if_not_open(self) -> None:
        if not self.is_open:
            raise ChannelWrongStateError("Channel is closed.")

    def get(self, queue: str) -> tuple[int, bytes] | None:
        """A message and its tag, as the application has it."""
        found = self.server.get(queue)
        if found is None:
            return None
        method = SimpleNamespace(delivery_tag=found[0])
        self._deliver(method, False)
        return method.delivery_tag, found[1]

    def settle(self, tag: int) -> int:
        """The broker's number of it. Raises StaleTag."""
        return self._settle(tag, False)


class ModelChannel:
    """A channel: what is published and acknowledged on it is not answered; what is lost is noticed by the next call."""

    def __init__(self, connection: ModelConnection, tags: Tags) -> None:
        self._connection = connection
        self._impl = ModelInner(connection.server(), tags)

    @property
    def is_open(self) -> bool:
        """As far as is known here."""
        return self._impl.is_open and self._connection.is_open

    def basic_get(self, queue: str) -> tuple[int, bytes] | None:
        """A message and its tag, or None."""
        return self._asked("get", lambda: self._impl.get(queue))

    def basic_publish(self, exchange: str, queue: str, body: bytes) -> None:
        """No answer says that it has arrived."""
        self._sent(lambda: self._impl.server.publish(queue, body))

    def basic_ack(self, tag: int) -> None:
        """No answer says that it has arrived. Raises StaleTag."""
        number = self._impl.settle(tag)
        self._sent(lambda: self._impl.server.acknowledge(number))

    def rpc(self, method: DtxMethod) -> Any:
        """A method, and its answer."""
        return self._asked(type(method).__name__, lambda: self._impl.server.cluster.handle(self._impl.server, method))

    def _sent(self, what: Callable[[], None]) -> None:
        if not self.is_open:
            raise ChannelWrongStateError("Channel is closed.")
        if self._impl.server.open:
            what()

    def _asked(self, name: str, what: Callable[[], Any]) -> Any:
        if not self.is_open:
            raise ChannelWrongStateError("Channel is closed.")
        try:
            self._connection.way.before(name)
            if not self._impl.server.open:
                raise Broken
            try:
                found = what()
            except Refused as error:
                self._impl.is_open = False
                raise ChannelClosedByBroker(error.code, error.text) from None
            self._connection.way.after(name)
        except Broken as error:
            self._connection.is_open = False
            late = (lambda: what() if self._impl.server.open else None) if error.late else None
            self._connection.way.lost(late, self._connection.gone)
            raise StreamLostError("Stream connection lost") from error
        return found


class ModelConnection:
    """One connection with one channel at a time."""

    def __init__(self, cluster: Cluster, way: Way, tags: Tags) -> None:
        self.cluster = cluster
        self.way = way
        self.is_open = True
        self._tags = tags
        self._servers: list[ServerChannel] = []
        told = {"cluster_name": cluster.name, "cluster_id": cluster.identity}
        self._impl = SimpleNamespace(server_properties=told, server_capabilities={"dtx": True})

    def server(self) -> ServerChannel:
        """The broker's end of a new channel."""
        self._servers.append(self.cluster.connect())
        return self._servers[-1]

    def channel(self) -> ModelChannel:
        """A new one."""
        return ModelChannel(self, self._tags)

    def close(self) -> None:
        """The broker knows at once."""
        self.is_open = False
        self.gone()

    def gone(self) -> None:
        """The broker knows."""
        for each in self._servers:
            each.close()


class ModelDtxConnection(DtxConnection):
    """The product's connection, on the model's. ``reach`` and ``opened`` are the world's."""

    reach: Reach
    opened: Callable[[ModelConnection], None]

    def _connect(self) -> Any:
        reasons = []
        for host in list(self._hosts):
            self._hosts.append(self._hosts.pop(0))
            try:
                cluster, way = type(self).reach(host.host)
                way.before("connect")
            except Broken as error:
                reasons.append(repr(error))
                continue
            connection = ModelConnection(cluster, way, self._tags)
            type(self).opened(connection)
            return connection
        raise Lost("; ".join(reasons))

    def _ask(self, method: DtxMethod) -> Any:
        return self.channel.rpc(method)


def host_of(url: str) -> str:
    """Its name."""
    return urlsplit(url).hostname or ""
