"""Certificates: what a cluster call does to read them again, and what a node says of the one that is in force."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any

from broker_plugin.logs.formats import tell
from broker_plugin.logs.tls_events import CertificateInForce
from broker_plugin.node.calls.actions import ActionContext, ActionFailed
from broker_plugin.tls.contexts import CertificatesInForce, Contexts
from broker_plugin.tls.files import TlsError
from txobserver.actions import ReloadCertificates

log = logging.getLogger("txha.tls")


class Certificates:
    """NodeAction of ``certificates``. ``contexts``: None at a node without TLS, which has nothing to read.

    What was in force stays in memory, so that a call that is not made can be undone; a node that starts reads its files
    anyway. ``on_change`` is told that others are in force: True, what stands in the files; False, what was before.
    """

    def __init__(self, contexts: Contexts | None) -> None:
        self.on_change: Callable[[bool], object] = lambda read: None
        self._contexts = contexts
        self._former: tuple[str, CertificatesInForce] | None = None

    def initial(self, name: str) -> ReloadCertificates:
        """There is nothing to say of it."""
        if self._contexts is None:
            raise ActionFailed("this node's configuration has no table tls: ask a node that has one")
        return ReloadCertificates()

    async def run(self, name: str, arguments: ReloadCertificates, context: ActionContext) -> None:
        """What stands in the files holds for connections that come from now on. What cannot be used changes nothing."""
        if self._contexts is None:
            return
        if context.undo:
            self._undo(self._contexts, context.call_id)
            return
        try:
            found = await asyncio.to_thread(self._contexts.prepared)
        except TlsError as error:
            raise ActionFailed(str(error)) from None
        former = self._contexts.use(found)
        if self._former is None or self._former[0] != context.call_id:
            self._former = context.call_id, former
        self._tell(self._contexts, True)

    def restore(self, name: str, arguments: ReloadCertificates) -> None:
        """The files have just been read."""

    def amiss(self) -> dict[str, str]:
        """What is in force is always a whole."""
        return {}

    def stop(self) -> None:
        """Nothing was begun."""

    # -- what the node says

    def shown(self) -> dict[str, Any] | None:
        """Of the certificate in force: when it expires, and in how many seconds; None where there is none."""
        if self._contexts is None:
            return None
        return {"not_after": self._contexts.not_after.isoformat(), "expires_seconds": round(self.expires() or 0.0)}

    def expires(self) -> float | None:
        """In so many seconds the certificate in force expires; less than 0 when it has. None where there is none."""
        return None if self._contexts is None else self._contexts.not_after.timestamp() - time.time()

    def _undo(self, contexts: Contexts, call_id: str) -> None:
        if self._former is not None and self._former[0] == call_id:
            contexts.use(self._former[1])
            self._former = None
            self._tell(contexts, False)

    def _tell(self, contexts: Contexts, read: bool) -> None:
        tell(log, logging.INFO, CertificateInForce(contexts.not_after.isoformat(), undone=not read))
        self.on_change(read)
