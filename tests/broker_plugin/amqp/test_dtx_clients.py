"""What two-phase clients say of a server that has no class dtx, and of work that one refuses."""

from __future__ import annotations

import asyncio
from typing import Any

import aio_pika
import pytest

from broker_plugin.amqp.protocol import handshake
from python_tests.suites.dtx.clients import MAKES
from recovery.dtx.errors import NotSupportedError, RolledBack
from recovery.dtx.with_aio_pika import AioDtxConnection
from tests.broker_plugin.amqp.conftest import Served, ServedByCore


@pytest.mark.parametrize("make", MAKES)
@pytest.mark.parametrize("two_phase", [True, False])
def test_a_server_without_the_class(
    served: Served, monkeypatch: pytest.MonkeyPatch, make: str, two_phase: bool
) -> None:
    """It would close the connection, with a code that says little."""
    monkeypatch.delitem(handshake.SERVER_PROPERTIES["capabilities"], "dtx")
    with pytest.raises(NotSupportedError, match="has no class dtx"):
        MAKES[make](f"amqp://guest:guest@127.0.0.1:{served.port}/", two_phase=two_phase)


def frame_arrives(channel: Any) -> asyncio.Event:
    """Set when aio-pika has read the next frame of this channel, and done nothing about it yet."""
    arrived, put = asyncio.Event(), channel.frames.put

    async def seen(frame: Any) -> None:
        await put(frame)
        arrived.set()

    channel.frames.put = seen
    return arrived


@pytest.mark.parametrize("turns", range(12))
async def test_a_refusal_is_told_however_far_aio_pika_is_with_it(core: ServedByCore, turns: int) -> None:
    """Calls fail some turns of the event loop before the channel tells the error that it was closed with."""
    async with AioDtxConnection(f"amqp://guest:guest@127.0.0.1:{core.port}/") as worker:
        xid = worker.xid(1, "x", "b")
        await worker.tpc_begin(xid)
        arrived = frame_arrives(await worker.channel.get_underlay_channel())
        nowhere = await worker.channel.get_exchange("nowhere", ensure=False)
        await nowhere.publish(aio_pika.Message(b"never"), "")
        await asyncio.wait_for(arrived.wait(), 10)
        for _ in range(turns):
            await asyncio.sleep(0)
        with pytest.raises(RolledBack, match="404"):
            await worker.tpc_prepare()
        await worker.tpc_rollback()
        await worker.tpc_begin(xid)
