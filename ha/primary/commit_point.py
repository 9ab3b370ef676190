"""The commit point: up to where the stream is durable on every node that counts, and who waits for it to pass."""

from __future__ import annotations

from collections import deque

from txobserver.ports.ledger import Done


class CommitPoint:
    """``sequence`` never goes back. ``serving``: clients are served, so that some wait for answers."""

    def __init__(self, sequence: int) -> None:
        self.sequence = sequence
        self.serving = False
        self._waiting: deque[tuple[int, Done]] = deque()

    def wait(self, sequence: int, done: Done) -> None:
        """Answer when this sequence, which nothing that waits stands behind, has passed."""
        self._waiting.append((sequence, done))

    def when_passed(self, sequence: int, done: Done) -> None:
        """The same; at once if it has passed already."""
        if sequence > self.sequence:
            self.wait(sequence, done)
        else:
            self.answer(done, None)

    def answer_up_to(self, sequence: int) -> None:
        """All up to this sequence has passed and has been applied."""
        while self._waiting and self._waiting[0][0] <= sequence:
            self.answer(self._waiting.popleft()[1], None)

    def answer(self, done: Done, outcome: str | None) -> None:
        """Tell an outcome, unless the clients have been closed meanwhile: then no client waits for it any more."""
        if self.serving:
            done(outcome)
