"""``txha definitions``: what users, virtual hosts, policies and queues there are as one file, as RabbitMQ has it."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from broker_plugin.cli.access.cluster_asked import Config, ask_cluster
from broker_plugin.cli.asking import BadArgument, Json, OptionalDir
from broker_plugin.cli.terminal import say

if TYPE_CHECKING:
    from broker_plugin.definitions.found import ImportFound
    from broker_plugin.definitions.state import DefinitionsHeld

app = typer.Typer(help="Take definitions over from RabbitMQ, or give them out.", no_args_is_help=True)

LARGEST_FILE = 64 << 20
"""Bytes of a file of definitions"""
STANDARD = Path("-")
OneVhost = Annotated[str | None, typer.Option("--vhost", "-p", help="Of this virtual host alone: no users in it.")]


@app.command("export")
def definitions_export(
    file: Annotated[Path, typer.Argument(metavar="[FILE]", help="Where to; - is standard output.")] = STANDARD,
    vhost: OneVhost = None,
    force: Annotated[bool, typer.Option("--force", help="Write over a file that is there.")] = False,
    dir: OptionalDir = None,
    config: Config = None,
) -> None:
    """Write what the cluster holds as a file that RabbitMQ and txha can import.

    It has the hashes of passwords in it, so only its owner may read it. A user whose hash is by scrypt can log in to
    txha with it; RabbitMQ cannot verify it.
    """
    from broker_plugin.definitions.writing import as_json, written, written_vhost
    from txobserver.rules import Vhost

    node, state = _state(dir, config)
    version = metadata.version("txha")
    if vhost is None:
        found = written(state, version)
    elif any(rule.name == vhost and isinstance(rule.value, Vhost) for rule in state.rules):
        found = written_vhost(state, version, vhost)
    else:
        raise BadArgument(f"there is no virtual host {vhost!r}; see `txha vhosts list`")
    if file == STANDARD:
        typer.echo(as_json(found))
        return
    _write(file, as_json(found) + "\n", force)
    counts = {section: len(each) for section, each in found.items() if isinstance(each, list)}
    say(f"{_counted(counts)} of {node} in {file}")


@app.command("import")
def definitions_import(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="RabbitMQ's or txha's; - is standard input.")],
    vhost: OneVhost = None,
    partial: Annotated[bool, typer.Option("--partial", help="Import the rest of what cannot all be honoured.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would be imported.")] = False,
    dir: OptionalDir = None,
    config: Config = None,
    as_json: Json = False,
) -> None:
    """Import a file of definitions: all of it at once, or nothing.

    What cannot be honoured here is listed, and nothing is imported then unless --partial leaves it out. What is there
    already stays; users, permissions, limits and policies of the file take the place of those with their names.
    """
    from broker_plugin.definitions.document import MalformedDocument, read_document
    from broker_plugin.definitions.reading import read_import
    from broker_plugin.definitions.state import packed_steps

    text = _read(file)
    node, state = _state(dir, config)
    try:
        found = read_import(read_document(text), state, vhost)
    except MalformedDocument as error:
        raise BadArgument(f"{file} is no file of definitions: {error}") from None
    wanted = not found.left_out or partial
    if wanted and not dry_run and found.steps:
        node, _ = ask_cluster(dir, config, "definitions.load", {"steps": packed_steps(found.steps)})
    done = wanted and not dry_run
    _tell(found, node, done, dry_run, as_json)
    if not wanted:
        raise typer.Exit(1)


def _counted(counts: Mapping[str, int]) -> str:
    """How many there are of each section."""
    return ", ".join(f"{count} {section.replace('_', ' ')}" for section, count in counts.items() if count) or "nothing"


def _state(dir: Path | None, config: Path | None) -> tuple[str, DefinitionsHeld]:
    from broker_plugin.definitions.state import unpacked_state

    node, answer = ask_cluster(dir, config, "definitions.state", {})
    return node, unpacked_state(answer["state"])


def _tell(found: ImportFound, node: str, done: bool, dry_run: bool, as_json: bool) -> None:
    left_out = [each._asdict() for each in found.left_out]
    if as_json:
        counts: dict[str, Any] = dict(found.counts)
        typer.echo(json.dumps({"imported": done, "counts": counts, "left_out": left_out}, indent=2, ensure_ascii=False))
        return
    if left_out:
        from broker_plugin.cli.tables import left_out_table

        left_out_table(left_out)
    counted = _counted(found.counts)
    if done:
        say(f"{counted} imported, says {node}" + (f"; {len(left_out)} left out" if left_out else ""))
    elif dry_run:
        say(f"{counted} would be imported" + (f", and {len(left_out)} left out with --partial" if left_out else ""))
    else:
        say(f"nothing was imported: {len(left_out)} cannot be honoured; --partial imports the rest: {counted}", True)


def _read(file: Path) -> bytes:
    """Raises BadArgument."""
    try:
        if file == STANDARD and sys.stdin is None:
            raise BadArgument("there is no standard input: give the name of a file")
        if file == STANDARD:
            data = sys.stdin.buffer.read(LARGEST_FILE + 1)
        else:
            with file.open("rb") as opened:
                data = opened.read(LARGEST_FILE + 1)
    except OSError as error:
        raise BadArgument(f"cannot read {file}: {error.strerror}") from None
    if len(data) > LARGEST_FILE:
        raise BadArgument(f"{file} has more than {LARGEST_FILE} bytes: import it in parts")
    return data


def _write(file: Path, text: str, force: bool) -> None:
    """For its owner only, whole or not at all. Raises BadArgument."""
    if file.is_symlink() or (file.exists() and not file.is_file()):
        raise BadArgument(f"{file} is no file of its own: give another name, or - for standard output")
    if file.exists() and not force:
        raise BadArgument(f"{file} is there already: give another name, or --force")
    beside = file.with_name(file.name + ".new")
    try:
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as opened:
            os.fchmod(opened.fileno(), 0o600)
            opened.write(text)
        beside.replace(file)
    except OSError as error:
        raise BadArgument(f"cannot write {file}: {error.strerror}") from None
