"""Which member is asked, what it is told of who asks, and what is said of one that cannot be asked."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from broker_plugin.coordination.etcd import wire
from broker_plugin.coordination.etcd.etcd_coordination import EtcdCoordination
from broker_plugin.coordination.etcd.etcd_process import EtcdProcess
from broker_plugin.coordination.etcd.members import Members, judged
from broker_plugin.coordination.etcd.place import PASSWORD, EtcdPlace
from ha.membership.record import UNSEEN, CoordinationError, Record
from python_tests.harness.cluster import free_base_port
from python_tests.harness.servers.etcd import EtcdServers
from python_tests.harness.waiting import wait_until
from tests.support.etcd import certificates, one_member
from tests.support.held_line import HeldLine
from txobserver.ids import Member

A = Member("a", "1")
FIRST = Record("c", 0, 1, A, (A,))
LONG = 3600.0
NOT_FOUND = "is not to be found: its name has no address"
HUNG_UP, REFUSED = "closes the connection: it may want TLS", "takes no such certificate of this node"


def place_at(*members: str, prefix: object = "/txha", options: str = "") -> EtcdPlace:
    return EtcdPlace.of_url(f"{','.join(members)}/{prefix}{options}")


def good() -> str:
    return f"127.0.0.1:{one_member().ports[0]}"


@contextmanager
def silent() -> Iterator[str]:
    """A member that takes connections and never says a word."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"127.0.0.1:{listening.getsockname()[1]}"


@contextmanager
def opened(place: EtcdPlace, seconds: float = 10.0) -> Iterator[EtcdCoordination]:
    store = EtcdCoordination(place, "c", True, seconds, 0.5)
    try:
        yield store
    finally:
        store.close()


def complaint(store: Any) -> str:
    with pytest.raises(CoordinationError) as refused:
        store.read()
    return str(refused.value)


def test_members_that_are_none_are_passed_over(tmp_path: Path) -> None:
    """One where nothing listens, one that says nothing, one whose name leads nowhere: a change is made by the fourth,
    since it certainly was made by none of them."""
    with silent() as mute:
        place = place_at(f"127.0.0.1:{free_base_port(1)}", mute, "no-such-host.invalid:1", good(), prefix=tmp_path)
        with opened(place) as store:
            assert store.compare_and_set(0, FIRST).version == 1
            there = store.read()
            assert there is not None
            assert store.watch(UNSEEN, LONG, threading.Event())
            with ThreadPoolExecutor(1) as thread:
                watch = thread.submit(store.watch, 1, LONG, threading.Event())
                with opened(place) as other:
                    stored = other.compare_and_set(1, there)
                found = watch.result(60.0)
            assert found is not None and found.record == stored


def test_a_member_that_is_far_away_is_met_in_several_attempts(tmp_path: Path) -> None:
    """A connection takes longer than an answer: what has been done for it is not done anew with each attempt."""
    with HeldLine(one_member().ports[0], delay=0.8) as line:
        place = place_at(f"127.0.0.1:{line.port}", prefix=tmp_path)
        with opened(place) as store:
            assert store.compare_and_set(0, FIRST).version == 1


def test_each_member_that_gives_no_answer_is_named() -> None:
    gone = f"127.0.0.1:{free_base_port(1)}"
    with silent() as mute, opened(place_at(gone, mute), 2.0) as store:
        said = complaint(store)
    assert f"{gone} cannot be reached" in said and f"{mute} gives no answer in time" in said


def test_a_member_of_another_etcd_is_passed_over_and_never_changed(tmp_path: Path) -> None:
    """The address names it by mistake; the etcd that was met first counts."""
    with EtcdServers(1) as other:
        theirs = f"127.0.0.1:{other.ports[0]}"
        place = place_at(good(), theirs, prefix=tmp_path)
        with opened(place_at(good(), prefix=tmp_path)) as founder:
            there = founder.compare_and_set(0, FIRST)
        with opened(place) as store:
            assert store.read() == there
            store._members._after(good())
            assert store.read() == there
            store._members._after(good())
            assert store.compare_and_set(1, there).version == 2
        assert other.control(0, "get", "", "--prefix", "--keys-only").stdout.strip() == ""
        with opened(place_at(theirs, good(), prefix=tmp_path), 1.0) as wrong:
            assert wrong.read() is None, "it is met first"
            other.kill(0)
            assert f"{good()} belongs to another etcd" in complaint(wrong)


def test_no_cluster_is_founded_where_members_belong_to_two_etcds(tmp_path: Path) -> None:
    """Whichever is named first; one that does not answer keeps no cluster from being founded."""
    with EtcdServers(1) as other:
        theirs = f"127.0.0.1:{other.ports[0]}"
        for members in ((good(), theirs), (theirs, good())):
            with opened(place_at(*members, prefix=tmp_path)) as store, pytest.raises(CoordinationError) as refused:
                store.compare_and_set(0, FIRST)
            wanted = f"{members[1]} belongs to another etcd than {members[0]}: name the members of one"
            assert str(refused.value) == wanted
            assert other.control(0, "get", "", "--prefix", "--keys-only").stdout.strip() == ""
        with opened(place_at(good(), prefix=tmp_path)) as store:
            assert store.read() is None
    with opened(place_at(good(), theirs, prefix=tmp_path)) as store:
        assert store.compare_and_set(0, FIRST).version == 1


def test_every_call_requires_a_leader(monkeypatch: pytest.MonkeyPatch) -> None:
    """So a member that is cut off from the others says so, and is not waited for."""
    members = Members(place_at(good()), 1.0)
    assert ("hasleader", "true") in members._metadata()
    members._token = "t"
    assert members._metadata() == (("hasleader", "true"), ("token", "t"))
    members.close()


class GrpcError(grpc.RpcError):
    """As gRPC raises it."""

    def __init__(self, code: grpc.StatusCode, details: str | None) -> None:
        self._said = code, details

    def code(self) -> grpc.StatusCode:
        return self._said[0]

    def details(self) -> str | None:
        return self._said[1]


@pytest.mark.parametrize(
    ("code", "details", "why", "made", "lasting"),
    [
        ("UNAVAILABLE", "etcdserver: no leader", "has no leader", False, False),
        ("RESOURCE_EXHAUSTED", "etcdserver: too many requests", "is overloaded", False, False),
        ("UNAUTHENTICATED", "etcdserver: invalid auth token", "has forgotten this login", False, True),
        ("INVALID_ARGUMENT", "etcdserver: revision of auth store is old", "has forgotten this login", False, True),
        ("UNAVAILABLE", "failed to connect to all addresses; last error: x", "cannot be reached", False, False),
        ("UNAVAILABLE", "failed to connect to all addresses; Ssl handshake", "agrees on no TLS", False, False),
        ("UNAVAILABLE", "failed to connect to all addresses; Socket closed", HUNG_UP, False, False),
        ("UNAVAILABLE", "failed to connect to all addresses; Connection reset by peer", HUNG_UP, False, False),
        ("UNAVAILABLE", "failed to connect to all addresses; Unwrap failed (TSI_x)", REFUSED, False, False),
        ("UNAVAILABLE", "DNS resolution failed for h", NOT_FOUND, False, False),
        ("PERMISSION_DENIED", "etcdserver: permission denied", "refuses: permission denied", False, True),
        (
            "RESOURCE_EXHAUSTED",
            "etcdserver: mvcc: database space exceeded",
            "refuses: mvcc: database space exceeded",
            False,
            True,
        ),
        ("DEADLINE_EXCEEDED", "Deadline Exceeded", "gives no answer in time", True, False),
        ("UNAVAILABLE", "etcdserver: leader changed", "has failed: leader changed", True, False),
        (
            "UNAVAILABLE",
            "etcdserver: request timed out, possibly due to previous leader failure",
            "has failed: request timed out, possibly due to previous leader failure",
            True,
            False,
        ),
        ("UNAVAILABLE", "errors resolving nohost:2379: [Domain name not found]", NOT_FOUND, False, False),
        (
            "UNAVAILABLE",
            "failed to connect to all addresses; last error: UNAVAILABLE: Handshake read failed (Endpoint closing)",
            "gives no answer in time",
            False,
            False,
        ),
        ("UNAVAILABLE", "a proxy found no leader", "has ended the connection", True, False),
        ("UNAVAILABLE", "Socket closed", "has ended the connection", True, False),
        ("UNKNOWN", None, "has ended the connection", True, False),
        ("CANCELLED", "Channel closed!", "has ended the connection", True, False),
    ],
)
def test_only_what_certainly_was_not_made_may_be_sent_again(
    code: str, details: str | None, why: str, made: bool, lasting: bool
) -> None:
    found = judged(GrpcError(grpc.StatusCode[code], details))
    assert (found.why, found.made, found.lasting) == (why, made, lasting)


def test_a_change_is_sent_once_if_it_may_have_been_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reading is asked for again, of the same member or the next."""
    sent: list[str] = []
    real = Members._sent

    def breaking(members: Members, member: str, channel: Any, method: Any, request: Any, until: float) -> Any:
        answer = real(members, member, channel, method, request, until)
        sent.append(method.path)
        if sent.count(method.path) == 1 and sent != [wire.RANGE.path]:  # not the first look at the member
            refusal = judged(GrpcError(grpc.StatusCode.UNAVAILABLE, "Socket closed"))
            raise _unanswered(refusal)
        return answer

    with opened(place_at(good(), prefix=tmp_path)) as store:
        there = store.compare_and_set(0, FIRST)
        monkeypatch.setattr(Members, "_sent", breaking)
        with pytest.raises(CoordinationError, match="whether the coordination record was changed is not known"):
            store.compare_and_set(1, there)
        assert sent == [wire.TXN.path]
        found = store.read()
        assert found is not None and found.version == 2


def test_a_change_before_which_a_member_could_not_be_met_was_not_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What has failed is the look at the member: the change was not sent, so it is sent to the next one."""
    failing = [_unanswered(judged(GrpcError(grpc.StatusCode.UNAVAILABLE, "Socket closed")))]
    real = Members._sent

    def breaking(members: Members, member: str, channel: Any, method: Any, request: Any, until: float) -> Any:
        if failing:
            assert method is wire.RANGE
            raise failing.pop()
        return real(members, member, channel, method, request, until)

    with opened(place_at(good(), prefix=tmp_path)) as store:
        there = store.compare_and_set(0, FIRST)
        store._members.close()
        monkeypatch.setattr(Members, "_sent", breaking)
        assert store.compare_and_set(1, there).version == 2 and not failing


def _unanswered(refusal: Any) -> Exception:
    from broker_plugin.coordination.etcd import members

    return members._Unanswered(refusal)


def test_a_call_ends_though_no_member_ever_answers() -> None:
    """Its time is that of the whole call, however many members there are."""
    with ExitStack() as stack:
        mute = [stack.enter_context(silent()) for _ in range(20)]
        with opened(place_at(*mute), 1.0) as store:
            said = complaint(store)
    assert len([each for each in mute if f"{each} gives no answer in time" in said]) < len(mute)


# -- who asks


def test_members_and_clients_prove_themselves_by_certificates(tmp_path: Path) -> None:
    """With another authority, without a certificate, and in clear there is no answer, and the sentence says why."""
    certificates(tmp_path)
    named = {
        option: tmp_path / file for option, file in (("ca", "ca.pem"), ("cert", "client.pem"), ("key", "client.key"))
    }
    served = ["--cert-file", tmp_path / "server.pem", "--key-file", tmp_path / "server.key", "--client-cert-auth"]
    served += ["--trusted-ca-file", tmp_path / "ca.pem"]
    control = [f"--{word}={path}" for word, path in zip(("cacert", "cert", "key"), named.values(), strict=True)]
    with EtcdServers(1, [str(word) for word in served], control) as servers:
        member = f"127.0.0.1:{servers.ports[0]}"
        right = "&".join(f"{option}={path}" for option, path in named.items())
        place = place_at(member, options=f"?{right}")
        with opened(place) as store:
            stored = store.compare_and_set(0, FIRST)
        node = EtcdProcess(place, "c")
        assert node.read() == stored
        node.close()
        silent_in(f"etcd://{member}/txha?{right.replace('/ca.pem', '/other.pem')}")
        for options, why in (("", HUNG_UP), (f"?ca={named['ca']}", REFUSED)):
            with opened(place_at(member, options=options), 1.0) as store:
                assert f"{member} {why}" in complaint(store)
        with opened(place_at(member, options=f"?{right.replace('/ca.pem', '/other.pem')}"), 1.0) as store:
            assert "agrees on no TLS" in complaint(store)


def silent_in(address: str) -> None:
    """gRPC writes no lines of its own, which would come with each attempt: the sentence stands alone."""
    code = "import sys; from broker_plugin.coordination.address import store_at; store_at(sys.argv[1]).open('c').read()"
    said = subprocess.run([sys.executable, "-c", code, address], capture_output=True, text=True)
    assert said.stderr.startswith("Traceback") and "Handshake" not in said.stderr


def test_a_user_proves_himself_by_a_password(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From a file or the environment; again when the member has forgotten it, without that being seen."""
    secret = tmp_path / "password"
    secret.write_text("right\n")
    secret.chmod(0o600)
    with EtcdServers(1) as servers:
        for words in (
            ("user", "add", "root:root"),
            ("user", "add", "node:right"),
            ("role", "add", "txha"),
            ("role", "grant-permission", "txha", "readwrite", "/txha/", "--prefix=true"),
            ("user", "grant-role", "node", "txha"),
            ("user", "grant-role", "root", "root"),
            ("auth", "enable"),
        ):
            assert servers.control(0, *words).returncode == 0, words
        member = f"127.0.0.1:{servers.ports[0]}"
        by_file = place_at(member, prefix="txha", options=f"?user=node&password=@{secret}")
        with opened(by_file) as store:
            there = store.compare_and_set(0, FIRST)
            store._members._token = "forgotten.1"
            assert store.compare_and_set(1, there).version == 2
            store._members._token = "forgotten.1"
            assert store.read() is not None
            assert store.watch(UNSEEN, LONG, threading.Event())
        by_environment = place_at(member, prefix="txha", options="?user=node")
        monkeypatch.setenv(PASSWORD, "right")
        node = EtcdProcess(by_environment, "c")
        assert node.read() is not None
        with opened(by_environment) as store:
            assert store.read() is not None
        node.close()
        monkeypatch.setenv(PASSWORD, "wrong")
        with opened(by_environment) as store:
            assert "refuses: authentication failed, invalid user ID or password" in complaint(store)
        monkeypatch.delenv(PASSWORD)
        with opened(by_environment) as store:
            assert f"the password of etcd's user node is missing: name its file, password=@FILE, or set {PASSWORD}" in (
                complaint(store)
            )
        with opened(place_at(member, prefix="txha")) as store:
            assert "refuses: user name is empty" in complaint(store)
        with opened(place_at(member, prefix="else", options=f"?user=node&password=@{secret}")) as store:
            assert "refuses: permission denied" in complaint(store)


# -- what is told of changes


def test_a_member_whose_stream_fails_is_not_asked_for_the_next_one() -> None:
    """Though it answers what it is asked: a stream is begun at the next member."""
    both = good(), f"localhost:{one_member().ports[0]}"
    unknown = wire.WATCH._replace(path="/etcdserverpb.Watch/None")
    with Members(place_at(*both), 5.0) as members:
        for member in (*both, both[0]):
            with pytest.raises(CoordinationError, match=f"etcd at {member} refuses"):
                next(members.stream(unknown, wire.WatchRequest(), time.monotonic() + 60.0))


def test_a_stream_goes_on_when_what_it_was_to_tell_was_compacted(tmp_path: Path) -> None:
    """And when the member ends it for another reason: another one is begun, and what changed meanwhile is told."""
    place = place_at(good(), prefix=tmp_path)
    told: list[int] = []
    with opened(place) as store:
        record = store.compare_and_set(0, FIRST)
        real, ends = Members.stream, iter([{"compact_revision": 7, "canceled": True}, {"canceled": True}])

        def ending(members: Members, method: Any, request: Any, until: float) -> Iterator[Any]:
            nonlocal record
            if (end := next(ends, None)) is None:
                yield from real(members, method, request, until)
            else:
                record = store.compare_and_set(record.version, record)
                yield method.response(**end)
                raise AssertionError("nothing more comes on this stream, and its connection stands")

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(Members, "stream", ending)
            from broker_plugin.coordination.etcd.change_stream import ChangeStream

            stream = ChangeStream(place, told.append, 0.5)
            stream.start()
            wait_until(lambda: told == [3], 60.0, "the stream's begin")
            revision = str(store._revision)
            record = store.compare_and_set(3, record)
            assert one_member().control(0, "compaction", revision).returncode == 0
            wait_until(lambda: told == [3, 4], 60.0, "what is told after that")
            stream.close()
