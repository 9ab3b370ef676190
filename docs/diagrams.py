"""Draws the state diagrams of protocol.md, dtx.md and dtx_clients.md from the tables that the code runs on.

    python docs/diagrams.py            rewrite the diagrams
    python docs/diagrams.py --check    exit status 1 if they differ from the tables

A diagram stands between two marks, ``<!-- states: NAME -->`` and ``<!-- end -->``, where NAME is the table's name.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from broker_plugin.amqp.protocol.handshake import CONNECTION_TABLE
from broker_plugin.embedded.transactions.branch import BRANCH_TABLE
from ha.membership.node_state import NODE_TABLE
from recovery.dtx.two_phase import CLIENT_TABLE
from txobserver.table import Table
from txobserver.tx_buffer import TX_TABLE

PAGES = tuple(Path(__file__).with_name(name) for name in ("protocol.md", "dtx.md", "dtx_clients.md"))
TABLES: dict[str, Table[str, str]] = {
    table.name: table for table in (NODE_TABLE, TX_TABLE, CONNECTION_TABLE, BRANCH_TABLE, CLIENT_TABLE)
}
MARKED = re.compile(r"(?P<begin><!-- states: (?P<name>[^>]+) -->\n).*?(?P<end><!-- end -->)", re.DOTALL)


def states(table: Table[str, str]) -> list[str]:
    """Every state, in the order in which the table names them."""
    named = [table.start]
    for (state, _), after in table.moves.items():
        named += [state, after]
    return list(dict.fromkeys(named))


def diagram(table: Table[str, str]) -> str:
    """The table as a mermaid state diagram. Events that lead the same way share an arrow."""
    lines = ["stateDiagram-v2"]
    lines += [f'    state "{state}" as {_alias(state)}' for state in states(table) if state != _alias(state)]
    lines.append(f"    [*] --> {_alias(table.start)}")
    arrows: dict[tuple[str, str], list[str]] = {}
    for (state, event), after in table.moves.items():
        arrows.setdefault((state, after), []).append(event)
    for (state, after), events in arrows.items():
        lines.append(f"    {_alias(state)} --> {_alias(after)}: {', '.join(events)}")
    leaving = {state for state, after in arrows if state != after}
    lines += [f"    {_alias(state)} --> [*]" for state in states(table) if state not in leaving]
    return "\n".join(lines)


def drawn(text: str) -> str:
    """The page with every diagram drawn anew. Raises KeyError for a mark that names no table."""

    def block(match: re.Match[str]) -> str:
        return f"{match['begin']}```mermaid\n{diagram(TABLES[match['name']])}\n```\n{match['end']}"

    return MARKED.sub(block, text)


def main(arguments: list[str]) -> int:
    """Rewrite or check; returns the exit status."""
    status = 0
    for page in PAGES:
        text = page.read_text()
        wanted = drawn(text)
        if "--check" not in arguments:
            page.write_text(wanted)
        elif wanted != text:
            print(f"{page.name} differs from the tables; run: python docs/diagrams.py", file=sys.stderr)
            status = 1
    return status


def _alias(state: str) -> str:
    return re.sub(r"\W", "_", state)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
