"""Where values of a configuration come from: its file, the environment, options; pydantic-settings puts them together.

Each source gives tables of values. A key is written with dots in messages and options (``timing.lease_ttl``), and with
two underscores in the environment (``TXHA_TIMING__LEASE_TTL``).
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, get_args, get_origin

from pydantic import BaseModel, BeforeValidator, ValidationError
from pydantic_core import ErrorDetails
from pydantic_settings import BaseSettings, EnvSettingsSource, InitSettingsSource, PydanticBaseSettingsSource

from recovery.secret_file import MARK, SecretFileError, read_secret

ENVIRONMENT = "TXHA_"
"""What names of variables begin with."""
LEVELS = "__"
"""What stands in the name of a variable between a table and a key of it."""
USERS = ("amqp", "users")
"""The table whose values may be ``@FILE``."""
LINK_SECRETS = ("peer", ("secret", "read_secret"))
"""The table with keys whose values are ``@FILE``, or stand in the environment."""
FILES = (("tls", ("certificate", "key", "authority")), ("amqp", ("users_file",)))
"""The tables with keys whose values are files, relative to where they are named."""

Values = dict[str, Any]


class ConfigError(Exception):
    """The configuration cannot be used; one sentence says why."""


def sources(
    model: type[BaseSettings],
    file: Values,
    environment: Mapping[str, str],
    options: Mapping[str, str],
    directory: Path,
) -> tuple[PydanticBaseSettingsSource, ...]:
    """What a configuration is made of, the strongest first: options, environment, file. Raises ConfigError.

    ``options`` have dotted names. A file that is named in the file (``@FILE``) is looked for in ``directory``.
    """
    _check_values(model, file)
    for dotted in options:
        _check(model, dotted.split("."), dotted, "")
    for variable, value in environment.items():
        dotted = key_of(variable)
        kind = _check(model, dotted.split("."), dotted, f"{variable}: ")
        _check_json(variable, value, kind)
    variables = EnvSettingsSource(model, env_prefix=ENVIRONMENT, env_nested_delimiter=LEVELS)
    variables.env_vars = {name.lower(): value for name, value in environment.items()}
    _check_values(model, variables())
    return (
        InitSettingsSource(model, _absolute(_without_secrets(_tables(options)), Path.cwd())),
        InitSettingsSource(model, _absolute(variables(), Path.cwd())),
        InitSettingsSource(model, _absolute(_without_secrets(file), directory)),
    )


def key_of(variable: str) -> str:
    """The key, with dots, that a variable of the environment stands for."""
    return variable.removeprefix(ENVIRONMENT).lower().replace(LEVELS, ".")


def sentence(error: ValidationError, model: type[BaseModel]) -> str:
    """The first thing that is wrong, in words, without the value. A misspelt key may be the one that is missing."""
    first = _first(error)
    where = _where(first)
    if first["type"] == "extra_forbidden":
        return _unknown(where, model)
    if first["type"] == "missing":
        return f"key {where!r} is missing"
    message = _IN_WORDS.get(first["type"]) or first["msg"].removeprefix("Value error, ")
    return f"{where}: {message}" if where else message


_IN_WORDS = {
    "model_type": "must be a table, whose keys stand below it or behind its name with a dot",
    "dict_type": "must be a table, with a value for each name",
    "list_type": "must be a list",
}
"""What pydantic says in words of Python"""


def blamed(error: ValidationError, file: Path, environment: Mapping[str, str], options: Mapping[str, str]) -> str:
    """Which source has given what is wrong first: an option, a variable, the file, or the file with some of those."""
    where = _where(_first(error))
    variables = {key_of(name): name for name in environment}
    for given, called in [*((dotted, "the options") for dotted in options), *variables.items()]:
        if where == given or where.startswith(f"{given}."):
            return called
    within = f"{where}." if where else ""
    parts = [f"the option {dotted}" for dotted in options if dotted.startswith(within)]
    parts += [name for dotted, name in variables.items() if dotted.startswith(within)]
    return f"{file} with {' and '.join(parts)}" if parts else str(file)


def _first(error: ValidationError) -> ErrorDetails:
    found = error.errors(include_input=False, include_context=False)
    return next((each for each in found if each["type"] == "extra_forbidden"), found[0])


def _where(first: ErrorDetails) -> str:
    return ".".join(str(part) for part in first["loc"])


def keys(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    """Every key of a model, with dots. A table of a list is called by the list's name alone."""
    for name, field in model.model_fields.items():
        kind = _table_of(field.annotation)
        if kind is None:
            yield prefix + name
        else:
            yield from keys(kind, f"{prefix}{name}.")


def _table_of(kind: Any) -> type[BaseModel] | None:
    """The model of a table, or of each table in a list; None for another value."""
    kind = get_args(kind)[0] if get_origin(kind) in (list, UnionType) else kind
    return kind if isinstance(kind, type) and issubclass(kind, BaseModel) else None


def _unknown(dotted: str, model: type[BaseModel]) -> str:
    plain = ".".join(part for part in dotted.split(".") if not part.isdecimal())
    nearest = difflib.get_close_matches(plain, sorted(keys(model)), n=1, cutoff=0.0)
    return f"unknown key {dotted!r}; the nearest known one is {nearest[0]!r}"


def _check(model: type[BaseModel], path: list[str], dotted: str, source: str) -> Any:
    """The type of the value with this name. Raises ConfigError if there is none."""
    kind: Any = model
    for depth, part in enumerate(path):
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            field = kind.model_fields.get(part)
            if field is None:
                raise ConfigError(source + _unknown(dotted, model))
            kind = _table_of(field.annotation) if get_origin(field.annotation) is UnionType else field.annotation
        elif get_origin(kind) is dict:
            kind = get_args(kind)[1]
        else:
            above = ".".join(path[:depth])
            raise ConfigError(f"{source}unknown key {dotted!r}: {above} has no keys of its own")
    return kind


def _check_values(model: type[BaseModel], value: Any, dotted: str = "") -> None:
    """A NUL is in no name of a file or host, and few keys are switched on or off: elsewhere true would count as 1.

    Raises ConfigError.
    """
    if isinstance(value, str) and "\0" in value:
        raise ConfigError(f"{dotted}: a text must not hold a NUL")
    if isinstance(value, bool) and not _is_switch(model, dotted):
        raise ConfigError(f"{dotted} cannot be {str(value).lower()}: give it a number or a text")
    parts = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in parts:
        _check_values(model, part, f"{dotted}.{key}" if dotted else str(key))


def _is_switch(model: type[BaseModel], dotted: str) -> bool:
    """Whether this key is true or false."""
    with suppress(ConfigError):
        kind = _check(model, dotted.split("."), dotted, "")
        return kind is bool or any(isinstance(each, bool) for each in get_args(kind))
    return False


def _check_json(variable: str, value: str, kind: Any) -> None:
    """A variable that stands for a table or a list holds JSON. Raises ConfigError."""
    if get_origin(kind) in (dict, list) or _table_of(kind) is not None:
        try:
            json.loads(value)
        except ValueError:
            raise ConfigError(f"{variable}: what holds several values is written as JSON") from None


def _tables(options: Mapping[str, str]) -> Values:
    found: Values = {}
    for dotted, value in options.items():
        *path, last = dotted.split(".")
        table = found
        for part in path:
            table = table.setdefault(part, {})
        if not isinstance(table, dict) or isinstance(table.get(last), dict):
            raise ConfigError(f"{dotted}: a table and a key of it are both given with --set: give its keys only")
        table[last] = value
    return found


def _absolute(values: Values, directory: Path) -> Values:
    """The same, with the whole path in each ``@FILE`` and each of ``FILES``: where these are relative to differs
    between the sources."""
    table, key = USERS
    if isinstance(_in(values, table, key), dict):
        whole = {user: absolute_file(secret, directory) for user, secret in values[table][key].items()}
        values = {**values, table: {**values[table], key: whole}}
    table, keys = LINK_SECRETS
    named = {key: absolute_file(values[table][key], directory) for key in keys if _in(values, table, key)}
    values = {**values, table: {**values[table], **named}} if named else values
    return _absolute_files(values, directory)


def _absolute_files(values: Values, directory: Path) -> Values:
    for table, keys in FILES:
        given = {key: found for key in keys if isinstance(found := _in(values, table, key), str) and found}
        if given:
            whole = {key: str(directory / found) for key, found in given.items()}
            values = {**values, table: {**values[table], **whole}}
    return values


def _without_secrets(values: Values) -> Values:
    """The same. Raises ConfigError for a link's secret in a file that others may read, or in a command line."""
    table, keys = LINK_SECRETS
    for key in keys:
        given = _in(values, table, key)
        if isinstance(given, str) and not given.startswith(MARK):
            variable = f"{ENVIRONMENT}{table}{LEVELS}{key}".upper()
            raise ConfigError(f"{table}.{key} names a file, as {MARK}FILE, or the secret stands in {variable}")
    return values


def _in(values: Values, table: str, key: str) -> Any:
    """What this table has for this key; None where there is none."""
    found = values.get(table)
    return found.get(key) if isinstance(found, dict) else None


def absolute_file(secret: Any, directory: Path) -> Any:
    """``@FILE`` with its whole path; what names no file as it is."""
    if not isinstance(secret, str) or not secret.startswith(MARK) or secret.startswith(MARK * 2):
        return secret
    return MARK + str(directory / secret[len(MARK) :])


def _named(given: object) -> object:
    if given == "":
        raise ValueError("must not be empty: it would mean the current directory")
    return given


Named = Annotated[Path, BeforeValidator(_named)]
"""A path that is not empty"""


def password_of(given: Any) -> Any:
    """What is given, or what stands in the file that it names. Raises ValueError, which tells nothing of it."""
    if not isinstance(given, str) or not given.startswith(MARK):
        return given
    if given.startswith(MARK * 2):
        return given[len(MARK) :]
    try:
        return read_secret(Path(given[len(MARK) :]), "one password, in one line")
    except SecretFileError as error:
        raise ValueError(f"{error}; a password that begins with {MARK} is written with {MARK * 2}") from None
