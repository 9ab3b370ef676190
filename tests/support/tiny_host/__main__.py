"""``python -m tests.support.tiny_host SOCKET``: attach to the node at this socket, again whenever it has ended."""

from __future__ import annotations

import asyncio
import sys

from tests.support.tiny_host.amqp import serve
from tests.support.tiny_host.queues import TinyBroker
from txha.spi import AttachmentEnded, attach_broker

RETRY_SECONDS = 0.1


async def main(socket: str) -> None:
    """Until the process is ended."""
    while True:
        broker = TinyBroker()
        server = await serve(broker, "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()[:2]
        try:
            await attach_broker(socket, broker, (host, port), "tiny")
        except AttachmentEnded as ended:
            if "no node listens" not in str(ended):
                print(f"attached to {socket} no more: {ended}", file=sys.stderr, flush=True)
        finally:
            server.close()
        await asyncio.sleep(RETRY_SECONDS)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
