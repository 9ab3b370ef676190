"""What an address of etcd says, and what is refused in one sentence, with nothing that is secret in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from broker_plugin.coordination.address import store_at
from broker_plugin.coordination.etcd.place import PASSWORD, EtcdPlace
from broker_plugin.node.config import ConfigError, check_places, load_config
from ha.membership.record import CoordinationError
from tests.support.etcd import certificates

FORM = "etcd://HOST:PORT,HOST:PORT/PREFIX"


@pytest.mark.parametrize(
    ("rest", "members", "key"),
    [
        ("h:2379/txha", ("h:2379",), b"/txha/record"),
        ("a.b:1,[::1]:65535/x/y/", ("a.b:1", "[::1]:65535"), b"/x/y/record"),
        ("h:1//x%20%3F", ("h:1",), b"/x ?/record"),
    ],
)
def test_members_and_prefix(rest: str, members: tuple[str, ...], key: bytes) -> None:
    place = EtcdPlace.of_url(rest)
    assert (place.members, place.key, place.encrypted) == (members, key, False)
    assert EtcdPlace.of_url(place.url.removeprefix("etcd://")) == place
    assert str(store_at(f"etcd://{rest}")) == f"etcd://{rest}"


def test_options() -> None:
    rest = "h:1/x?ca=/c%20a&cert=/cert&key=/key&user=n%26m&password=@/p&plans=/var/plans"
    place = EtcdPlace.of_url(rest)
    given = {"ca": "/c a", "cert": "/cert", "key": "/key", "user": "n&m", "password": "@/p", "plans": "/var/plans"}
    assert place.options == given and place.encrypted and not place.needs_password
    assert EtcdPlace.of_url(place.url.removeprefix("etcd://")) == place
    assert EtcdPlace.of_url("h:1/x?user=n").needs_password


@pytest.mark.parametrize(
    ("rest", "said"),
    [
        ("", f"'' is no member of etcd: write {FORM}"),
        ("/x", f"'' is no member of etcd: write {FORM}"),
        ("h/x", f"'h' is no member of etcd: write {FORM}"),
        ("h:1,/x", f"'' is no member of etcd: write {FORM}"),
        ("h h:1/x", f"'h h:1' is no member of etcd: write {FORM}"),
        ("h:1, i:1/x", f"' i:1' is no member of etcd: write {FORM}"),
        ("h:0/x", f"'h:0' is no member of etcd: write {FORM}"),
        ("h:65536/x", f"'h:65536' is no member of etcd: write {FORM}"),
        ("http://h:1/x", f"'http:' is no member of etcd: write {FORM}"),
        ("h:1,h:1/x", "an address of etcd names each member once"),
        ("h:1", f"etcd://h:1 names no prefix for the keys of this cluster: write {FORM}"),
        ("h:1/", f"etcd://h:1 names no prefix for the keys of this cluster: write {FORM}"),
        ("u:hidden@h:1/x", f"user and password do not stand before the members: write {FORM}?user=NAME&password=@FILE"),
        ("h:1/x#y", "an address of etcd has no part behind #: write # as %23"),
        ("h:1/x?timeout=1", "etcd has no option 'timeout'; there are ca, cert, key, plans, user, password"),
        ("h:1/x?user=a&user=b", "etcd's option user is given twice"),
        ("h:1/x?user=", "etcd's option user is empty: leave it out"),
        (
            "h:1/x?user=a&password=hidden",
            "a password does not stand in an address: name the file that it stands in, password=@FILE",
        ),
        ("h:1/x?user=a&password=@hidden", "etcd's option password is a whole path, which begins with /"),
        ("h:1/x?ca=ca.pem", "etcd's option ca is a whole path, which begins with /"),
        ("h:1/x?cert=/c&key=/k", "etcd's option cert has no effect without ca"),
        ("h:1/x?ca=/a&cert=/c", "etcd's option cert has no effect without key"),
        ("h:1/x?ca=/a&key=/k", "etcd's option key has no effect without cert"),
        ("h:1/x?password=@/p", "etcd's option password has no effect without user"),
    ],
)
def test_what_is_wrong_is_refused_with_a_sentence(rest: str, said: str) -> None:
    with pytest.raises(ValueError) as refused:
        store_at(f"etcd://{rest}")
    assert str(refused.value) == said and "hidden" not in said


def test_two_addresses_of_one_record_are_one_store() -> None:
    """In any order of the members, and whatever a node proves itself by; the prefix counts, and each member."""
    one = store_at("etcd://a:1,b:2/x")
    assert one == store_at("etcd://b:2,a:1/x/?user=n") and hash(one) == hash(store_at("etcd://b:2,a:1/x"))
    assert one not in (store_at("etcd://a:1,b:2/y"), store_at("etcd://a:1/x"), store_at("/x"), "etcd://a:1,b:2/x")


def secret(path: Path, text: str = "p\n") -> Path:
    path.write_text(text)
    path.chmod(0o600)
    return path


def test_files_are_looked_at_before_anything_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A node that is started with a key that others may read, or without its password, says so and ends."""
    monkeypatch.delenv(PASSWORD, raising=False)
    certificates(tmp_path)
    ca, cert, key = (tmp_path / name for name in ("ca.pem", "client.pem", "client.key"))
    options = f"ca={ca}&cert={cert}&key={key}&user=n&password=@{secret(tmp_path / 'password')}"
    store = store_at(f"etcd://h:1/x?{options}&plans={tmp_path}")
    store.check_writable()
    store.check_readable()
    key.chmod(0o640)
    refuses(options, f"key of etcd: others than its owner may use {key}")
    refuses(f"ca={tmp_path / 'none'}", f"ca of etcd: {tmp_path / 'none'} cannot be read: No such file")
    refuses(f"ca={secret(tmp_path / 'a')}", f"ca of etcd: {tmp_path / 'a'} holds no certificate in PEM")
    other = tmp_path / "server.key"
    refuses(f"ca={ca}&cert={cert}&key={other}", f"{cert} and {other} hold no certificate in PEM with its key")
    refuses(f"user=n&password=@{secret(tmp_path / 'b', '')}", f"{tmp_path / 'b'} must hold one password, in one line")
    refuses("user=n", "the password of etcd's user n is missing: name its file, password=@FILE")
    monkeypatch.setenv(PASSWORD, "p")
    store_at("etcd://h:1/x?user=n").check_writable()


def refuses(options: str, said: str) -> None:
    for check in ("check_writable", "check_readable"):
        with pytest.raises(CoordinationError) as refused:
            getattr(store_at(f"etcd://h:1/x?{options}"), check)()
        assert said in str(refused.value)


def test_a_configuration_with_the_password_in_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The variable is no key of the configuration, and its value is shown by none of them."""
    text = 'name = "a"\ncluster = "c"\ndir = "a"\ncoordination = "etcd://h:1/x?user=n"\n[peer]\nport = 7\n'
    (tmp_path / "node.toml").write_text(text)
    monkeypatch.setenv(PASSWORD, "hidden")
    loaded = load_config(tmp_path / "node.toml")
    check_places(loaded)
    assert "hidden" not in repr(loaded) and str(loaded.coordination) == "etcd://h:1/x?user=n"
    monkeypatch.delenv(PASSWORD)
    with pytest.raises(ConfigError, match=r"^coordination: the password of etcd's user n is missing"):
        check_places(loaded)
