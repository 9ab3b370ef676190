"""Who may use the cluster, as the applied prefix of the stream leads to it: users, and their rules (seed 000, *state*).

Users are steps of configuration like any other: numbered by the one numbering, the same on every node at the same
position, and kept in checkpoints and snapshots with a digest. A step holds a password as a hash, never in clear.

What a step depends on is judged here, where it is applied: two operators may add one user at the same time, and the
hash that a login makes anew must not take the place of a password that was changed meanwhile
(``rehashed_over_a_new_password``).
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from typing import Any, Final

import msgspec

from txobserver.audited import AUDITED, KeptChange, check_audited, kept_change, plain_step, whose
from txobserver.batch import LOAD, Part
from txobserver.events import Configure
from txobserver.refusal import Refusal
from txobserver.rule_table import rules_after, without_user
from txobserver.rules import (
    PERMISSION,
    RULES,
    VHOST,
    VHOST_GONE,
    Permission,
    Rule,
    Vhost,
    check_rule_step,
    place_of,
    shown_rule,
)
from txobserver.vhosts import DEFAULT_VHOST

ADD_USER: Final = "user.add"
SET_PASSWORD: Final = "user.password"
SET_TAGS: Final = "user.tags"
DELETE_USER: Final = "user.delete"
PUT_USER: Final = "user.put"
FOUND_USERS: Final = "user.found"
ACCESS = frozenset({PUT_USER, ADD_USER, SET_PASSWORD, SET_TAGS, DELETE_USER, FOUND_USERS, LOAD, AUDITED, *RULES})
"""The steps of configuration that are about who may use the cluster."""
SETTING_PASSWORDS = frozenset({ADD_USER, PUT_USER, SET_PASSWORD})
USERS_FEATURE: Final = "users"
"""What a node names that can apply them."""
MOST_USERS: Final = 10_000
"""Of one cluster: all of them stand in each checkpoint."""
LONGEST_NAME: Final = 255
"""Bytes of a user's name, and of a tag."""
LONGEST_HASH: Final = 1024
"""Characters of what is kept of a password."""
MOST_TAGS: Final = 64
"""Of one user."""
EVERYTHING: Final = Permission(".*", ".*", ".*")
"""What the users may do in the default virtual host that a cluster begins with, as they could before it kept users."""

_encode = msgspec.msgpack.Encoder(order="deterministic").encode


class User(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    """A user. ``hash``: what is kept of the password; ``number``: the config_id of the step that added the user."""

    name: str
    hash: str
    tags: tuple[str, ...] = ()
    number: int = 0


class NewUser(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    """The arguments of ``ADD_USER`` and ``PUT_USER``."""

    hash: str
    tags: tuple[str, ...]


class NewPassword(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    """The arguments of ``SET_PASSWORD``. ``instead_of``: the hash that must stand there; "": whichever does."""

    hash: str
    instead_of: str


class NewTags(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    """The arguments of ``SET_TAGS``."""

    tags: tuple[str, ...]


class FoundUsers(msgspec.Struct, array_like=True, frozen=True, forbid_unknown_fields=True):
    """The arguments of ``FOUND_USERS``: the users of the first primary's own file, of which ``source`` is a hash."""

    users: list[User]
    source: str


_ARGUMENTS: dict[str, Any] = {
    ADD_USER: NewUser,
    PUT_USER: NewUser,
    SET_PASSWORD: NewPassword,
    SET_TAGS: NewTags,
    FOUND_USERS: FoundUsers,
    LOAD: list[Part],
}


def add_user_step(name: str, hash_: str, tags: tuple[str, ...] = ()) -> Configure:
    """Adds a user; refused with EXISTS if there is one of this name."""
    return Configure(0, ADD_USER, name, _encode(NewUser(hash_, tags)))


def put_user_step(name: str, hash_: str, tags: tuple[str, ...]) -> Configure:
    """Adds a user, or gives the one that there is this password and these tags, in one step."""
    return Configure(0, PUT_USER, name, _encode(NewUser(hash_, tags)))


def set_password_step(name: str, hash_: str, instead_of: str = "") -> Configure:
    """Gives a user another password; GONE if there is none, CHANGED if another hash stands there."""
    return Configure(0, SET_PASSWORD, name, _encode(NewPassword(hash_, instead_of)))


def set_tags_step(name: str, tags: tuple[str, ...]) -> Configure:
    """Gives a user these tags and no others; GONE if there is none."""
    return Configure(0, SET_TAGS, name, _encode(NewTags(tags)))


def delete_user_step(name: str) -> Configure:
    """Deletes a user; GONE if there is none."""
    return Configure(0, DELETE_USER, name, b"")


def found_users_step(users: list[User], source: str) -> Configure:
    """The cluster keeps its users from here on, and these are the first; EXISTS if it does already."""
    return Configure(0, FOUND_USERS, "*", _encode(FoundUsers(users, source)))


def check_access_step(step: Configure) -> None:
    """Whether a step of ``ACCESS`` can be, whatever it meets where it is applied. Raises ValueError."""
    if step.operation == AUDITED:
        step = check_audited(step)
        if step.operation not in ACCESS - {AUDITED, FOUND_USERS, VHOST_GONE}:
            raise ValueError(f"no operator asks for {step.operation!r}")
    if step.operation in RULES:
        check_rule_step(step)
        return
    kind = _ARGUMENTS.get(step.operation)
    arguments = None if kind is None else msgspec.msgpack.decode(step.arguments, type=kind)
    if kind is None and step.arguments:
        raise ValueError("it has arguments")
    _check_text("a name", step.name)
    if isinstance(arguments, FoundUsers):
        if len({each.name for each in arguments.users}) != len(arguments.users):
            raise ValueError("a user is named twice")
        for user in arguments.users:
            _check_text("a name", user.name)
            _check(user.hash, user.tags)
    elif arguments is not None and step.operation != LOAD:
        _check(getattr(arguments, "hash", "x"), getattr(arguments, "tags", ()))


def _check(hash_: str, tags: tuple[str, ...]) -> None:
    if not 1 <= len(hash_) <= LONGEST_HASH:
        raise ValueError(f"a hash of {len(hash_)} characters")
    if len(tags) > MOST_TAGS or len(set(tags)) != len(tags):
        raise ValueError(f"{len(tags)} tags; a user has {MOST_TAGS} at most, and none twice")
    for tag in tags:
        _check_text("a tag", tag)


def _check_text(what: str, text: str) -> None:
    if not 1 <= len(text.encode("utf-8", "surrogatepass")) <= LONGEST_NAME:
        raise ValueError(f"{what} takes 1 to {LONGEST_NAME} bytes")


Shown = tuple[str, str]
"""A value before and after a change, as text"""


def user_put(users: Mapping[str, User], step: Configure) -> User | Refusal:
    """The user that a step of ``ADD_USER`` or ``PUT_USER`` leads to, or why there is none."""
    there = users.get(step.name)
    if there is None and len(users) >= MOST_USERS:
        return Refusal.TOO_MANY
    new = msgspec.msgpack.decode(step.arguments, type=NewUser)
    return User(step.name, new.hash, new.tags, there.number if there is not None else step.config_id)


class Access(msgspec.Struct, array_like=True):
    """``users`` by their names, ``rules`` by their places. ``source``: the hash of the file that the first users came
    from, "" if from none.

    ``events``: how many steps of ``ACCESS`` have been applied; while there is none, nodes go by their own files.
    ``last``: the config_id of the last one, so what was judged by an earlier one is known to be out of date.
    ``changes``: the history of what operators have changed, the oldest first.
    """

    users: dict[str, User] = {}
    source: str = ""
    events: int = 0
    last: int = 0
    changes: list[KeptChange] = []
    rules: dict[str, Rule] = {}

    def copy(self) -> Access:
        """The same, independent of this one."""
        return Access(self.users, self.source, self.events, self.last, self.changes, self.rules)

    def digest(self) -> int:
        """64 bits over all of it; 0 where there never was a step."""
        if not self.events:
            return 0
        content = [self.users[name] for name in sorted(self.users)]
        rules = [self.rules[place] for place in sorted(self.rules)]
        whole = _encode((content, self.source, self.events, self.last, self.changes, rules))
        return int.from_bytes(blake2b(whole, digest_size=8).digest(), "big")

    def apply(self, step: Configure, vacant: bool = False) -> Refusal | None:
        """Carry out a step of ``ACCESS``; returns why it was not. ``vacant``: nothing is declared in the virtual host
        that it names. What is held is replaced, never changed: copies share it."""
        self.events += 1
        self.last = step.config_id
        if step.operation == AUDITED:
            return self._audited(step)
        return self._carry_out(step, vacant)

    def loaded(
        self, step: Configure, users: dict[str, User], rules: dict[str, Rule], refusal: Refusal | None, shown: Shown
    ) -> None:
        """A step with parts has been tried, and these are the users and rules from here on. ``shown``: what the history
        of changes says of those that were there before, and of what came."""
        self.events += 1
        self.last = step.config_id
        self.users, self.rules = users, rules
        if step.operation == AUDITED:
            self._keep(step, *shown, refusal)

    def _audited(self, step: Configure) -> Refusal | None:
        within = plain_step(step)
        before = self._shown(within)
        refusal = self._carry_out(within)
        after = self._shown(within, sets_password=refusal is None and within.operation in SETTING_PASSWORDS)
        self._keep(step, before, after, refusal)
        return refusal

    def _keep(self, step: Configure, before: str, after: str, refusal: Refusal | None) -> None:
        change = kept_change(step, before, after, refusal or "")
        self.changes = [*self.changes, change][-whose(step).kept :]

    def _shown(self, step: Configure, sets_password: bool = False) -> str:
        """What a step is about as the history shows it, without what is kept of a password; "" if there is none."""
        if step.operation in RULES:
            return shown_rule(self.rules.get(place_of(step)))
        user = self.users.get(step.name)
        if user is None:
            return ""
        shown: dict[str, Any] = {"tags": user.tags, **({"password": "set"} if sets_password else {})}
        return msgspec.json.encode(shown).decode()

    def _carry_out(self, step: Configure, vacant: bool = False) -> Refusal | None:
        if step.operation == FOUND_USERS:
            return self._found(step)
        if step.operation in RULES:
            return self._rule(step, vacant)
        there = self.users.get(step.name)
        if step.operation in (ADD_USER, PUT_USER):
            if there is not None and step.operation == ADD_USER:
                return Refusal.EXISTS
            user = user_put(self.users, step)
            if isinstance(user, Refusal):
                return user
            self._put(user)
            return None
        if there is None:
            return Refusal.GONE
        if step.operation == DELETE_USER:
            self.users = {name: user for name, user in self.users.items() if name != step.name}
            self.rules = without_user(self.rules, step.name)
            return None
        if step.operation == SET_TAGS:
            tags = msgspec.msgpack.decode(step.arguments, type=NewTags).tags
            self._put(msgspec.structs.replace(there, tags=tags))
            return None
        password = msgspec.msgpack.decode(step.arguments, type=NewPassword)
        if password.instead_of and password.instead_of != there.hash:
            return Refusal.CHANGED
        self._put(msgspec.structs.replace(there, hash=password.hash))
        return None

    def _found(self, step: Configure) -> Refusal | None:
        if self.events > 1:
            return Refusal.EXISTS
        found = msgspec.msgpack.decode(step.arguments, type=FoundUsers)
        if len(found.users) > MOST_USERS:
            return Refusal.TOO_MANY
        self.users = {each.name: msgspec.structs.replace(each, number=step.config_id) for each in found.users}
        self.source = found.source
        granted = [Rule(PERMISSION, DEFAULT_VHOST, name, "", EVERYTHING) for name in self.users]
        first = Rule(VHOST, DEFAULT_VHOST, DEFAULT_VHOST, "", Vhost("Default virtual host"))
        self.rules = {rule.place: rule for rule in (first, *granted)}
        return None

    def _rule(self, step: Configure, vacant: bool) -> Refusal | None:
        self.rules, refusal = rules_after(self.rules, step, self.users, vacant)
        return refusal

    def _put(self, user: User) -> None:
        self.users = {**self.users, user.name: user}
