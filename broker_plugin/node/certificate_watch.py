"""Says in the log, once a day, that this node's certificate, or what it trusts, expires soon.

A link that stands goes on when its certificates have expired, and none can be made anew then: a cluster whose
certificates have expired runs until its next connection breaks. So it is said before.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from cryptography import x509

from broker_plugin.guard import Guard
from broker_plugin.logs.formats import tell
from broker_plugin.logs.tls_events import CertificateExpires
from broker_plugin.tls.contexts import Contexts
from broker_plugin.tls.files import TIME

log = logging.getLogger("txha.tls")
SOON = timedelta(days=14)
"""Before the end, from when on it is said"""
SAID_EVERY = timedelta(days=1)
LOOK_SECONDS = 600.0
"""Between two looks: another certificate may have been loaded meanwhile"""


def clock() -> datetime:
    """The system's."""
    return datetime.now(UTC)


class CertificateWatch:
    """Of what is in force in ``contexts``."""

    def __init__(self, guard: Guard, contexts: Contexts, now: Callable[[], datetime] = clock) -> None:
        self._guard = guard
        self._contexts = contexts
        self._now = now
        self._said: datetime | None = None
        self._ended = False

    def start(self) -> None:
        """Look, and go on to do so."""
        if not self._ended:
            self.look()
            self._guard.call_later(LOOK_SECONDS, self.start)

    def stop(self) -> None:
        """No more."""
        self._ended = True

    def look(self) -> None:
        """Say what expires soon, unless it has been said within a day."""
        now = self._now()
        if self._said is not None and now - self._said < SAID_EVERY:
            return
        files, material = self._contexts.files, self._contexts.in_force.material
        trusted = max(each.not_valid_after_utc for each in x509.load_pem_x509_certificates(material.authorities))
        for path, ends in ((files.certificate, material.not_after), (files.authority, trusted)):
            if ends - now < SOON:
                self._said = now
                days = max(0, (ends - now).days)
                tell(log, logging.WARNING, CertificateExpires(str(path), f"{ends:{TIME}}", days))


def watch_certificate(guard: Guard, contexts: Contexts | None) -> Callable[[], None]:
    """From now on; returns what ends it."""
    if contexts is None:
        return lambda: None
    watch = CertificateWatch(guard, contexts)
    watch.start()
    return watch.stop
