"""Numbers that docs/limits.md lists of packages of which it lists only some: each is the one of the code."""

from __future__ import annotations

from importlib import import_module

import pytest

from tests.support.limits import documented


def value_of(name: str) -> object:
    """The constant, or the default of a field, that stands on the page by this name."""
    *before, last = name.split(".")
    owner: object
    try:
        owner = import_module(".".join(before))
    except ModuleNotFoundError:
        owner = getattr(import_module(".".join(before[:-1])), before[-1])
    defaults = getattr(owner, "_field_defaults", {})
    return defaults[last] if last in defaults else getattr(owner, last)


@pytest.mark.parametrize("package", ["broker_plugin.admin", "broker_plugin.amqp", "broker_plugin.embedded"])
def test_numbers_that_bound_clients_are_those_of_the_code(package: str) -> None:
    listed = documented(package)
    assert len(listed) > 4 and {name: value_of(name) for name in listed} == listed
