"""NodeLife: whether a node's process is certainly gone, as its coordination process can know it.

The node opens a descriptor of its own process (Linux: ``pidfd_open``) and hands it down, so that it names this process
and no later one of the same number, whenever the child looks. It can be read when all threads of the process have
exited: each has closed its descriptors by then, and writes nothing any more. A process that is stopped, that hangs, or
of which one thread waits in the kernel for a disk, is not gone. Who its children's parent is says less: that changes
when the thread ends that has started them.
"""

from __future__ import annotations

import os
import select


def open_own_life() -> int | None:
    """A descriptor of this process, for a child; None where the system gives none: then no child knows."""
    try:
        return os.pidfd_open(os.getpid())
    except (AttributeError, OSError):
        return None


class NodeLife:
    """``descriptor``: that of the node's process, which the node has opened itself."""

    def __init__(self, descriptor: int) -> None:
        self._poll = select.poll()
        self._poll.register(descriptor, select.POLLIN)

    def gone(self, seconds: float = 0.0) -> bool:
        """Whether all of its threads have exited, or do within so many seconds."""
        return any(event & select.POLLIN for _, event in self._poll.poll(seconds * 1000))
