"""Members: the members of an etcd, asked one after the other until one gives an answer, or the time is up.

Each call requires that the member has a leader (``hasleader``): one that is cut off from the others says so at once.
What changes nothing is asked again, of the same member or of another one. A change is sent a second time only where it
certainly was not made: the member could not be reached, or has refused it. gRPC itself repeats nothing.

A connection is made anew after each failure but a refusal, with the files of certificates as they are then. The first
that is asked of it is which etcd the member belongs to: an address may name members of two by mistake.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from types import TracebackType
from typing import Any, NamedTuple

from broker_plugin.coordination.etcd import wire
from broker_plugin.coordination.etcd.place import EtcdPlace
from ha.membership.record import CoordinationError

os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # it would write lines of its own of each attempt
import grpc

PAUSE_SECONDS = 0.1
"""After all members were asked in vain, before they are asked again"""
ALIVE_SECONDS = 10.0
"""Between looks whether a member is there that tells of changes; etcd allows no more than one in five seconds"""
ALIVE_ANSWER_SECONDS = 5.0
"""In which it has to show that, and in which a connection is made or begun anew"""
AGAIN_SECONDS = 1.0
"""Between attempts to connect with a member, at most"""
_CHANNEL = (
    ("grpc.enable_http_proxy", 0),
    ("grpc.enable_retries", 0),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.keepalive_time_ms", int(ALIVE_SECONDS * 1000)),
    ("grpc.keepalive_timeout_ms", int(ALIVE_ANSWER_SECONDS * 1000)),
    ("grpc.http2.max_pings_without_data", 0),
    ("grpc.max_reconnect_backoff_ms", int(AGAIN_SECONDS * 1000)),
    ("grpc.min_reconnect_backoff_ms", int(ALIVE_ANSWER_SECONDS * 1000)),
)
"""Of gRPC: no proxy of the environment, no repetition, nothing shared between connections, no long waits to connect"""
_LASTING = (
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.OUT_OF_RANGE,
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
    grpc.StatusCode.UNAUTHENTICATED,
    grpc.StatusCode.UNIMPLEMENTED,
)
"""What every member would say"""
_NO_LEADER = "etcdserver: no leader"
_TOO_MANY = "etcdserver: too many requests"
_OLD_TOKEN = ("etcdserver: invalid auth token", "etcdserver: revision of auth store is old")
"""What etcd says of a request that it has not proposed, word for word"""
_UNREACHED = "failed to connect to all addresses"
_UNFOUND = ("errors resolving", "DNS resolution failed")
"""What gRPC says of a call that it could not send"""
_UNHEARD = "Endpoint closing"
"""What it says in that where it has given up to wait for the other end: of a member that is frozen, or cut off"""
_UNWRAPPED = "Unwrap failed"
"""What it says in that where TLS was agreed on at this end, and the other end then refused it: this certificate"""
_SHUT = ("Socket closed", "onnection reset")
"""What it says in that where the other end was reached and hung up, as etcd does without a word where it wants TLS"""


class NoAnswer(NamedTuple):
    """Why a member gave no answer, for people. ``made``: whether a change may have been made. ``lasting``: any other
    member would say the same. ``broken``: the connection is of no use any more. ``late``: the time was too short for an
    answer. ``old_token``: another login is needed. ``foreign``: it is a member of another etcd."""

    why: str
    made: bool
    lasting: bool = False
    broken: bool = False
    late: bool = False
    old_token: bool = False
    foreign: bool = False


class _Unanswered(Exception):
    def __init__(self, refusal: NoAnswer) -> None:
        self.refusal = refusal


class Members:
    """The members of ``place``. A call that is not answered in ``attempt_seconds`` by one of them is given up.

    Use it from one thread; ``give_up`` may come from any. ``etcd``: identity of the cluster of members, as the first
    of them that was asked said it; 0 before.
    """

    def __init__(self, place: EtcdPlace, attempt_seconds: float) -> None:
        self._place = place
        self._attempt_seconds = attempt_seconds
        self._channels: dict[str, grpc.Channel] = {}
        self._met: set[str] = set()
        self._first = 0
        self._token = ""
        self._call: Any = None
        self._stream: Any = None
        self._given_up = threading.Event()
        self.etcd = 0

    def ask(self, method: wire.Method, request: Any, until: float, change: bool = False) -> Any:
        """The answer, by this monotonic time. Raises CoordinationError; for a ``change``: its outcome is unknown."""
        refusals: dict[str, str] = {}
        while not self._given_up.is_set():
            for member in self._in_turn():
                if (left := until - time.monotonic()) <= 0.0:
                    raise CoordinationError(self._silence(refusals))
                try:
                    return self._answer(member, method, request, min(left, self._attempt_seconds))
                except _Unanswered as error:
                    refusal = error.refusal
                    if refusal.old_token:
                        self._token = ""
                    if refusal.lasting and not refusal.old_token:
                        raise CoordinationError(f"etcd at {member} {refusal.why}") from error
                    self._after(member)
                    if change and refusal.made:
                        raise CoordinationError(
                            f"whether the coordination record was changed is not known: etcd at {member} {refusal.why}"
                        ) from error
                    if left >= self._attempt_seconds:  # else it had no time to say why
                        refusals[member] = refusal.why
                    else:
                        refusals.setdefault(member, refusal.why)
            self._given_up.wait(min(PAUSE_SECONDS, max(0.0, until - time.monotonic())))
        raise CoordinationError(self._silence(refusals))

    def agree(self, until: float) -> None:
        """Refuse an address that names members of two etcds. One that gives no answer in its time is not waited for.

        Raises CoordinationError.
        """
        self.ask(wire.RANGE, _whose(self._place), until)
        for member in self._place.members:
            try:
                self._connected(member, min(until, time.monotonic() + self._attempt_seconds))
            except _Unanswered as error:
                if error.refusal.foreign:
                    raise CoordinationError(
                        f"{member} {error.refusal.why} than {self._place.members[self._first]}: name the members of one"
                    ) from error

    def stream(self, method: wire.Method, request: Any, until: float) -> Iterator[Any]:
        """What a member tells, until it ends; ``until``: by when a member has to be found. Raises CoordinationError."""
        self.ask(wire.RANGE, _whose(self._place), until)
        member = next(self._in_turn())
        ended = threading.Event()

        def requests() -> Iterator[Any]:
            yield request
            ended.wait()

        call = self._channels[member].stream_stream(method.path, _to_bytes, method.response.FromString)(
            requests(), metadata=self._metadata()
        )
        self._stream = call
        try:
            if not self._given_up.is_set():
                yield from call
        except grpc.RpcError as error:
            self._after(member)
            raise CoordinationError(f"etcd at {member} {judged(error).why}") from error
        finally:
            ended.set()
            call.cancel()

    def give_up(self) -> None:
        """From any thread: the answers to what is on its way and to what comes are not waited for any more."""
        self._given_up.set()
        for call in (self._call, self._stream):
            if call is not None:
                call.cancel()

    def __enter__(self) -> Members:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End all connections; another call makes them anew."""
        for member in list(self._channels):
            self._disconnect(member)

    def _in_turn(self) -> Iterator[str]:
        """The member that gave the last answer is asked first."""
        members = self._place.members
        return iter(members[self._first :] + members[: self._first])

    def _after(self, member: str) -> None:
        members = self._place.members
        self._first = (members.index(member) + 1) % len(members)

    def _answer(self, member: str, method: wire.Method, request: Any, seconds: float) -> Any:
        """Raises _Unanswered, CoordinationError."""
        until = time.monotonic() + seconds
        try:
            channel = self._connected(member, until)
        except _Unanswered as error:
            raise _Unanswered(error.refusal._replace(made=False)) from error
        answer = self._sent(member, channel, method, request, until)
        if answer.header.cluster_id != self.etcd:
            self._disconnect(member)
            raise _Unanswered(NoAnswer("belongs to another etcd now", made=True))
        self._first = self._place.members.index(member)
        return answer

    def _connected(self, member: str, until: float) -> grpc.Channel:
        """A connection to this member, logged in. Raises _Unanswered, CoordinationError."""
        if member not in self._channels:
            self._channels[member] = self._channel(member)
        channel = self._channels[member]
        self._log_in(member, channel, until)
        if member not in self._met:
            found = self._sent(member, channel, wire.RANGE, _whose(self._place), until).header.cluster_id
            if self.etcd not in (0, found):
                self._disconnect(member)
                raise _Unanswered(NoAnswer("belongs to another etcd", made=False, foreign=True))
            self.etcd = found
            self._met.add(member)
        return channel

    def _log_in(self, member: str, channel: grpc.Channel, until: float) -> None:
        """Raises _Unanswered, CoordinationError."""
        if not self._token and (login := self._place.login()) is not None:
            request = wire.AuthenticateRequest(name=login[0], password=login[1])
            self._token = self._sent(member, channel, wire.AUTHENTICATE, request, until).token

    def _channel(self, member: str) -> grpc.Channel:
        """Raises CoordinationError."""
        if not self._place.encrypted:
            return grpc.insecure_channel(member, _CHANNEL)
        ca, key, cert = (self._place.pem(option) for option in ("ca", "key", "cert"))
        return grpc.secure_channel(member, grpc.ssl_channel_credentials(ca, key, cert), _CHANNEL)

    def _sent(self, member: str, channel: grpc.Channel, method: wire.Method, request: Any, until: float) -> Any:
        """Raises _Unanswered."""
        seconds = max(0.0, until - time.monotonic())
        token = method is not wire.AUTHENTICATE
        call = channel.unary_unary(method.path, _to_bytes, method.response.FromString).future(
            request, timeout=seconds, metadata=self._metadata() if token else None
        )
        self._call = call
        if self._given_up.is_set():
            call.cancel()
        try:
            return call.result()
        except grpc.FutureCancelledError:
            refusal = NoAnswer("was not waited for", made=True)
        except grpc.RpcError as error:
            refusal = judged(error)
        if refusal.broken and (member in self._met or not refusal.late):
            self._disconnect(member)  # one that is still being made goes on: it takes more than one answer
        raise _Unanswered(refusal)

    def _metadata(self) -> tuple[tuple[str, str], ...]:
        leader = (("hasleader", "true"),)
        return (*leader, ("token", self._token)) if self._token else leader

    def _disconnect(self, member: str) -> None:
        self._met.discard(member)
        if (channel := self._channels.pop(member, None)) is not None:
            with suppress(Exception):  # of an end that comes twice
                channel.close()

    def _silence(self, refusals: dict[str, str]) -> str:
        reasons = "; ".join(f"{member} {why}" for member, why in sorted(refusals.items()))
        return f"etcd gives no answer: {reasons or 'it was not waited for'}"


def _to_bytes(message: Any) -> bytes:
    return bytes(message.SerializeToString())


def _whose(place: EtcdPlace) -> Any:
    """Asks a member for next to nothing; what it answers says which etcd it belongs to."""
    return wire.RangeRequest(key=place.key, count_only=True, serializable=True)


def _unreached(said: str) -> str:
    if any(word in said for word in ("andshake", "SSL", "certificate")):
        return "agrees on no TLS"
    if _UNWRAPPED in said:
        return "takes no such certificate of this node"
    if any(word in said for word in _SHUT):
        return "closes the connection: it may want TLS"
    return "cannot be reached"


def judged(error: grpc.RpcError) -> NoAnswer:
    """What this error of gRPC means."""
    code, said = error.code(), error.details() or ""
    if said == _NO_LEADER:
        return NoAnswer("has no leader", made=False)
    if said == _TOO_MANY:
        return NoAnswer("is overloaded", made=False)
    if said in _OLD_TOKEN:
        return NoAnswer("has forgotten this login", made=False, lasting=True, old_token=True)
    if said.startswith(_UNFOUND):
        return NoAnswer("is not to be found: its name has no address", made=False, broken=True)
    if said.startswith(_UNREACHED):
        if _UNHEARD in said:
            return NoAnswer("gives no answer in time", made=False, broken=True)
        return NoAnswer(_unreached(said), made=False, broken=True)
    if code in _LASTING:
        return NoAnswer(f"refuses: {said.removeprefix('etcdserver: ')}", made=False, lasting=True)
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return NoAnswer("gives no answer in time", made=True, broken=True, late=True)
    if said.startswith("etcdserver: "):
        return NoAnswer(f"has failed: {said.removeprefix('etcdserver: ')}", made=True)
    return NoAnswer("has ended the connection", made=True, broken=True)
