"""EtcdPlace: what an address of a record in etcd says: members, prefix, and how a node proves itself."""

from __future__ import annotations

import os
import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import quote, unquote

from ha.membership.record import CoordinationError
from recovery.secret_file import MARK, SecretFileError, read_bytes, read_secret

SCHEME = "etcd://"
FORM = "etcd://HOST:PORT,HOST:PORT/PREFIX"
"""What an address of this scheme looks like; characters that mean something in a URL are written as %XX"""
PASSWORD = "TXHA_ETCD_PASSWORD"
"""Environment: the password of ``user``, where the address names no file of it"""
FILES = ("ca", "cert", "key", "plans")
"""Options that are whole paths"""
OPTIONS = (*FILES, "user", "password")
_MEMBER = re.compile(r"(\[[0-9a-fA-F:.]+\]|[^\[\]:@/\s]+):([0-9]{1,5})")


@dataclass(frozen=True)
class EtcdPlace:
    """``members``: each as ``host:port``. ``prefix``: of all keys that are ours. ``options``: by the names in
    ``OPTIONS``, those that are given."""

    members: tuple[str, ...]
    prefix: str
    options: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of_url(cls, rest: str) -> EtcdPlace:
        """``rest`` stands behind ``etcd://``. Raises ValueError, with a sentence that repeats no password."""
        where, _, words = rest.partition("?")
        hosts, _, path = where.partition("/")
        if "@" in hosts:
            raise ValueError(
                f"user and password do not stand before the members: write {FORM}?user=NAME&password=@FILE"
            )
        if "#" in rest:
            raise ValueError("an address of etcd has no part behind #: write # as %23")
        members = tuple(hosts.split(","))
        if wrong := [member for member in members if not _is_member(member)]:
            raise ValueError(f"{wrong[0]!r} is no member of etcd: write {FORM}")
        if len(set(members)) != len(members):
            raise ValueError("an address of etcd names each member once")
        prefix = unquote(path).strip("/")
        if not prefix:
            raise ValueError(f"etcd://{hosts} names no prefix for the keys of this cluster: write {FORM}")
        return cls(members, f"/{prefix}", _options(words))

    @property
    def key(self) -> bytes:
        """Where the record is."""
        return f"{self.prefix}/record".encode()

    @property
    def url(self) -> str:
        """The whole address, in which no password stands."""
        options = "&".join(f"{name}={quote(value, safe='/@')}" for name, value in self.options.items())
        return f"{SCHEME}{','.join(self.members)}{quote(self.prefix)}{'?' if options else ''}{options}"

    def with_option(self, name: str, value: str) -> str:
        """The address with one option more, for people."""
        return replace(self, options={**self.options, name: value}).url

    @property
    def needs_password(self) -> bool:
        """Whether the password stands in the environment."""
        return "user" in self.options and "password" not in self.options

    @property
    def encrypted(self) -> bool:
        """Whether the members are spoken to by TLS."""
        return "ca" in self.options

    def pem(self, option: str) -> bytes | None:
        """What stands in the file that this option names; None where it is not given. Raises CoordinationError."""
        if option not in self.options:
            return None
        try:
            return read_bytes(Path(self.options[option]), private=option == "key")
        except SecretFileError as error:
            raise CoordinationError(f"{option} of etcd: {error}") from error

    def login(self) -> tuple[str, str] | None:
        """User and password, as they are now; None where none is wanted. Raises CoordinationError."""
        user = self.options.get("user")
        if user is None:
            return None
        named = self.options.get("password")
        if named is None:
            if not (given := os.environ.get(PASSWORD, "")):
                raise CoordinationError(
                    f"the password of etcd's user {user} is missing: name its file, password=@FILE, or set {PASSWORD}"
                )
            return user, given
        try:
            return user, read_secret(Path(named[len(MARK) :]), "one password, in one line")
        except SecretFileError as error:
            raise CoordinationError(f"password of etcd: {error}") from error

    def check(self) -> None:
        """Whether all files that it names can be used. Raises CoordinationError."""
        for option in ("ca", "cert", "key"):
            self.pem(option)
        self._check_certificates()
        self.login()

    def _check_certificates(self) -> None:
        """Here, since gRPC says of a file that holds none only that it cannot speak TLS."""
        context, ca, cert, key = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), *map(self.options.get, ("ca", "cert", "key"))
        try:
            if ca is not None:
                context.load_verify_locations(ca)
        except ssl.SSLError as error:
            raise CoordinationError(f"ca of etcd: {ca} holds no certificate in PEM") from error
        try:
            if cert is not None:
                context.load_cert_chain(cert, key, password="")
        except ssl.SSLError as error:
            raise CoordinationError(
                f"cert of etcd: {cert} and {key} hold no certificate in PEM with its key"
            ) from error


def _is_member(text: str) -> bool:
    found = _MEMBER.fullmatch(text)
    return found is not None and 1 <= int(found[2]) <= 65535


def _options(words: str) -> dict[str, str]:
    """Raises ValueError for one that is not known, is given twice, or has no effect."""
    found: dict[str, str] = {}
    for word in words.split("&") if words else []:
        name, _, value = word.partition("=")
        if name not in OPTIONS:
            raise ValueError(f"etcd has no option {name!r}; there are {', '.join(OPTIONS)}")
        if name in found:
            raise ValueError(f"etcd's option {name} is given twice")
        found[name] = unquote(value)
        if not found[name]:
            raise ValueError(f"etcd's option {name} is empty: leave it out")
    _check_paths(found)
    _check_effects(found)
    return found


def _check_paths(options: Mapping[str, str]) -> None:
    if "password" in options and not options["password"].startswith(MARK):
        raise ValueError("a password does not stand in an address: name the file that it stands in, password=@FILE")
    named = {name: options[name] for name in FILES if name in options}
    if "password" in options:
        named["password"] = options["password"][len(MARK) :]
    for name, path in named.items():
        if not path.startswith("/"):
            raise ValueError(f"etcd's option {name} is a whole path, which begins with /")


def _check_effects(options: Mapping[str, str]) -> None:
    for name, needed in (("cert", "ca"), ("cert", "key"), ("key", "cert"), ("password", "user")):
        if name in options and needed not in options:
            raise ValueError(f"etcd's option {name} has no effect without {needed}")
