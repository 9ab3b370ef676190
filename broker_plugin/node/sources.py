"""Where values of a configuration come from: its file, the environment, options; pydantic-settings puts them together.

Each source gives tables of values. A key is written with dots in messages and options (``timing.lease_ttl``), and with
two underscores in the environment (``TXHA_TIMING__LEASE_TTL``).
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, get_args, get_origin

from pydantic import BaseModel, ValidationError
from pydantic_settings import BaseSettings, EnvSettingsSource, InitSettingsSource, PydanticBaseSettingsSource

from broker_plugin.secret_file import MARK

ENVIRONMENT = "TXHA_"
"""What names of variables begin with."""
LEVELS = "__"
"""What stands in the name of a variable between a table and a key of it."""
SECRETS = ("amqp", "users")
"""The table whose values may be ``@FILE``."""

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
    for dotted in options:
        _check(model, dotted.split("."), dotted, "")
    for variable, value in environment.items():
        name = variable.removeprefix(ENVIRONMENT).lower()
        kind = _check(model, name.split(LEVELS), name.replace(LEVELS, "."), f"{variable}: ")
        _check_json(variable, value, kind)
    variables = EnvSettingsSource(model, env_prefix=ENVIRONMENT, env_nested_delimiter=LEVELS)
    variables.env_vars = {name.lower(): value for name, value in environment.items()}
    return (
        InitSettingsSource(model, _absolute(_tables(options), Path.cwd())),
        InitSettingsSource(model, _absolute(variables(), Path.cwd())),
        InitSettingsSource(model, _absolute(file, directory)),
    )


def sentence(error: ValidationError, model: type[BaseModel]) -> str:
    """The first thing that is wrong, in words, without the value. A misspelt key may be the one that is missing."""
    found = error.errors(include_input=False, include_context=False)
    first = next((each for each in found if each["type"] == "extra_forbidden"), found[0])
    where = ".".join(str(part) for part in first["loc"])
    if first["type"] == "extra_forbidden":
        return _unknown(where, model)
    if first["type"] == "missing":
        return f"key {where!r} is missing"
    message = first["msg"].removeprefix("Value error, ")
    return f"{where}: {message}" if where else message


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
    kind = get_args(kind)[0] if get_origin(kind) is list else kind
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
            kind = field.annotation
        elif get_origin(kind) is dict:
            kind = get_args(kind)[1]
        else:
            above = ".".join(path[:depth])
            raise ConfigError(f"{source}unknown key {dotted!r}: {above} has no keys of its own")
    return kind


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
        table[last] = value
    return found


def _absolute(values: Values, directory: Path) -> Values:
    """The same, with the whole path in each ``@FILE``: where it is relative to differs between the sources."""
    table, key = SECRETS
    users = values.get(table, {}).get(key) if isinstance(values.get(table), dict) else None
    if not isinstance(users, dict):
        return values
    whole = {user: absolute_file(secret, directory) for user, secret in users.items()}
    return {**values, table: {**values[table], key: whole}}


def absolute_file(secret: Any, directory: Path) -> Any:
    """``@FILE`` with its whole path; what names no file as it is."""
    if not isinstance(secret, str) or not secret.startswith(MARK) or secret.startswith(MARK * 2):
        return secret
    return MARK + str(directory / secret[len(MARK) :])
