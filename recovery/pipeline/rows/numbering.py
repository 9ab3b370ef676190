"""Of each event of a transaction its number and its xid, for many events at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from recovery.pipeline.rows.columns import Flags, Numbers

Begun = tuple[int | None, str | None]
"""How many events of a transaction came before, and its xid; None where that is not known any more."""
UNKNOWN: Begun = (None, None)


class TransactionEvents(NamedTuple):
    """Events of transactions, in order.

    ``at``: by what ``xids`` names them: from those events on, their transactions have these. ``openings`` begin to
    count anew, ``decisions`` are the last of their transactions.
    """

    at: Numbers
    transactions: Numbers
    openings: Flags
    decisions: Flags
    xids: Mapping[int, str]


class Numbered(NamedTuple):
    """Of each event its number, -1 where it is unknown, and ``which`` of the xids is its own, -1 for none."""

    numbers: Numbers
    which: Numbers
    xids: Sequence[str]


class Numbering:
    """Counts on from batch to batch.

    ``begun`` is asked for what came before of a transaction that was open already. Memory grows with the transactions
    that are open, and with nothing else.
    """

    def __init__(self, begun: Callable[[int], Begun]) -> None:
        self._begun = begun
        self._open: dict[int, Begun] = {}

    def forget(self) -> None:
        """Events are left out here: what is open is to be asked for again."""
        self._open.clear()

    def number(self, events: TransactionEvents) -> Numbered:
        """Numbers and xids of these events, which follow those of the call before."""
        count = len(events.at)
        order = np.argsort(events.transactions, kind="stable")
        at, transactions = events.at[order], events.transactions[order]
        openings, decisions = events.openings[order], events.decisions[order]
        firsts = openings.copy()
        firsts[0] = True
        firsts[1:] |= (transactions[1:] != transactions[:-1]) | decisions[:-1]
        if events.xids:
            firsts |= np.isin(at, [*events.xids])
        begins = np.flatnonzero(firsts)
        lengths = np.diff(begins, append=count)
        runs = zip(
            at[begins].tolist(),
            transactions[begins].tolist(),
            lengths.tolist(),
            openings[begins].tolist(),
            decisions[begins + lengths - 1].tolist(),
            strict=True,
        )
        bases, own, xids = [], [], list[str]()
        for first, tx, length, opens, ends in runs:
            base, xid = self._run(tx, length, opens, ends, events.xids.get(first))
            bases.append(-1 if base is None else base)
            own.append(-1 if xid is None else len(xids))
            if xid is not None:
                xids.append(xid)
        base_of, numbers, which = np.repeat(bases, lengths), np.empty(count, np.int64), np.empty(count, np.int64)
        numbers[order] = np.where(base_of < 0, -1, base_of + np.arange(count) - np.repeat(begins, lengths))
        which[order] = np.repeat(own, lengths)
        return Numbered(numbers, which, xids)

    def _run(self, tx: int, length: int, opens: bool, ends: bool, named: str | None) -> Begun:
        """The first number and the xid of a run of a transaction's events."""
        number: int | None = 0
        if opens:
            xid = named
        else:
            number, before = self._open.get(tx) or self._begun(tx)
            xid = named or before
        if ends:
            self._open.pop(tx, None)
        else:
            self._open[tx] = (None if number is None else number + length, xid)
        return number, xid
