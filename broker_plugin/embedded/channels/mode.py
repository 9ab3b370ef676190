"""Which mode a channel is in, and the unit of work that its publishes and acknowledgements belong to.

There are three: confirm, tx, dtx. One excludes the others, and none is left again. In tx mode there is a unit of work
at any time, in dtx mode while the channel works on a branch.
"""

from __future__ import annotations

from broker_plugin.embedded.channels.client import Client
from broker_plugin.embedded.channels.confirms import Confirms
from broker_plugin.embedded.errors import dtx_error, precondition
from broker_plugin.embedded.memory_budget import Holder
from broker_plugin.embedded.queues.consumer import Receiver
from broker_plugin.embedded.serving import Serving
from broker_plugin.embedded.transactions.branch import Association
from broker_plugin.embedded.transactions.dtx_mode import DtxMode
from broker_plugin.embedded.transactions.transaction import LocalTransaction
from txobserver.outcomes import XaStatus
from txobserver.ports.ledger import NameInUse, Observer
from txobserver.xid import Xid


class Mode:
    """Of one channel. ``work``: the unit of work, None if what the client does takes effect at once.

    ``confirms``: None outside confirm mode; ``dtx``: None outside dtx mode.
    """

    def __init__(self, broker: Serving, channel: Receiver, client: Client) -> None:
        self.confirms: Confirms | None = None
        self.work: LocalTransaction | Association | None = None
        self.dtx: DtxMode | None = None
        self._broker = broker
        self._ledger = broker.ledger
        self._channel: Receiver | None = channel
        self._client = client

    @property
    def works(self) -> bool:
        """Whether there is a unit of work with something in it whose end must still be read, also during an alarm.

        A transaction is not meant that began after the end of another one in that alarm: its client may wait.
        """
        if self.dtx is not None:
            return self.dtx.works
        work = self.work
        if not isinstance(work, LocalTransaction) or work.empty:
            return False
        return not work.alarm or work.alarm != self._client.alarm

    # -- selecting one

    def select_confirms(self) -> None:
        """confirm.select. 406 in another mode."""
        self._check("confirm")
        if self.confirms is None:
            self.confirms = Confirms(self._broker.turn, self._confirm)

    def select_tx(self) -> None:
        """tx.select. 406 in another mode."""
        self._check("tx")
        if self.work is None:
            self.work = self._new_transaction(0)

    def select_dtx(self) -> None:
        """dtx.select. 406 in another mode."""
        self._check("dtx")
        if self.dtx is None:
            assert self._channel is not None, "the channel is open"
            self.dtx = DtxMode(self._channel, self._broker.branches)

    def _check(self, wanted: str) -> None:
        """406 if the channel is in another mode."""
        modes = {"confirm": self.confirms is not None, "dtx": self.dtx is not None}
        modes["tx"] = isinstance(self.work, LocalTransaction)
        for mode, selected in modes.items():
            if selected and mode != wanted:
                raise precondition(f"cannot switch from {mode} to {wanted} mode")

    def _confirm(self, tag: int, multiple: bool, accepted: bool) -> None:
        channel = self._channel
        if channel is not None and not channel.closed:
            channel.outlet.confirmed(tag, multiple, accepted)

    def leave(self) -> None:
        """The channel has ended, and what it held is back in its queues: nothing here leads to it any more."""
        self._channel = self.confirms = self.work = self.dtx = None

    # -- tx

    def transaction(self) -> LocalTransaction:
        """The open transaction. 406 outside tx mode."""
        if not isinstance(self.work, LocalTransaction):
            raise precondition("channel is not transactional")
        return self.work

    def next_transaction(self) -> LocalTransaction:
        """The open transaction, which ends now; another one is open from here on. 406 outside tx mode."""
        ending = self.transaction()
        self.work = self._new_transaction(self._client.alarm)
        return ending

    def _new_transaction(self, alarm: int) -> LocalTransaction:
        return LocalTransaction(self._begin, self._client.holder, alarm)

    def _begin(self, holder: Holder) -> Observer:
        return self._ledger.begin(None, holder)

    def name_transaction(self, token: bytes) -> None:
        """dtx.token: the outcome of the transaction is remembered under this token. 406, 530 and 542."""
        try:
            self.transaction().name(token)
        except NameInUse as error:
            raise dtx_error(530, str(error)) from None
        except ValueError as error:
            raise dtx_error(542, str(error)) from None

    # -- dtx

    def check_dtx(self) -> DtxMode:
        """503 if dtx was not selected."""
        if self.dtx is None:
            raise dtx_error(503, "dtx was not selected on this channel")
        return self.dtx

    def start_branch(self, xid: Xid, join: bool, resume: bool) -> XaStatus:
        """dtx.start, as ``DtxMode.start``: from now on the channel's work belongs to the branch."""
        dtx = self.check_dtx()
        status = dtx.start(xid, join, resume)
        self.work = dtx.current
        return status

    def end_branch(self, xid: Xid, fail: bool, suspend: bool) -> XaStatus:
        """dtx.end, as ``DtxMode.end``."""
        dtx = self.check_dtx()
        status = dtx.end(xid, fail, suspend)
        self.work = dtx.current
        return status
