"""The keys of the configuration that are about calls: what reaches the core, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from broker_plugin.node.calls.part import CallsPart
from broker_plugin.node.config import ConfigError, NodeConfig, check_places, parse_config
from tests.support.guards import strict_guard
from txobserver.actions import SHIPPED
from txobserver.ids import Member

TEXT = """
name = "a"
cluster = "c"
dir = "{0}/a"
coordination = "{0}/record"
peer = {{ port = 7001 }}
"""


def config(directory: Path, text: str = "", **flags: str) -> NodeConfig:
    flags = {key.replace("__", "."): each for key, each in flags.items()}
    return parse_config(TEXT.format(directory) + text, directory / "node.toml", flags, {})


def test_what_is_given_reaches_the_core(tmp_path: Path) -> None:
    found = config(tmp_path, timing__call_retry="0.5", timing__ticket_timeout="8", calls_kept="7")
    settings = found.core_settings()
    assert (settings.call_retry, settings.ticket_timeout, settings.calls_kept) == (0.5, 8.0, 7)
    assert found.hook_seconds == 4.0, "half of the ticket's time"
    plain = config(tmp_path)
    assert (plain.timing.call_retry, plain.calls_kept, plain.hooks, plain.listeners) == (1.0, 100, {}, {})


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ({"timing__call_retry": "0.05"}, "call_retry must be at least 0.1"),
        ({"timing__call_retry": "1e10"}, "less than or equal"),
        ({"timing__call_retry": "10"}, "ticket_timeout must be more than call_retry"),
        ({"timing__ticket_timeout": "0.5"}, "ticket_timeout must be more than call_retry"),
        ({"timing__ticket_timeout": "inf"}, "finite"),
        ({"calls_kept": "0"}, "greater than or equal to 1"),
        ({"calls_kept": "10001"}, "less than or equal to 10000"),
        ({"hook_seconds": "0"}, "greater than 0"),
        ({"hook_seconds": "10"}, "hook_seconds must be less than timing.ticket_timeout"),
        ({"listeners__x__port": "0"}, "greater than or equal to 1"),
        ({"listeners__x__port": "7001"}, "127.0.0.1:7001 is given twice"),
        ({"listeners__x__host": "h"}, "listeners.x.port"),
        ({"listeners__x__prot": "7"}, "unknown key"),
        ({"hooks__x": ""}, "must not be empty"),
    ],
)
def test_what_cannot_be_is_refused(flags: Any, said: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=said):
        config(tmp_path, **flags)


def test_names_are_bounded(tmp_path: Path) -> None:
    for name, size in (('""', 0), (f'"{"x" * 256}"', 256)):
        with pytest.raises(ConfigError, match=f"hooks: a name has 1 to 255 bytes, not {size}"):
            config(tmp_path, f'hooks = {{ {name} = "/bin/true" }}')


def test_a_hook_is_an_executable_file_with_its_whole_path(tmp_path: Path) -> None:
    plain = tmp_path / "plain"
    plain.write_text("")
    check_places(config(tmp_path, hooks__x="/bin/sh"))
    for path in ("sh", "/nowhere/x", str(plain), str(tmp_path)):
        with pytest.raises(ConfigError, match=r"hooks\.x: .* is not the whole path of an executable file"):
            check_places(config(tmp_path, hooks__x=path))


def test_a_node_can_do_all_that_its_release_ships(tmp_path: Path) -> None:
    """What is in the registry and has no action here would end the node that is called."""
    part = CallsPart(strict_guard(), config(tmp_path), "c" * 32, Member("a", "1"))
    assert sorted(part.surroundings._actions) == SHIPPED.operations()
