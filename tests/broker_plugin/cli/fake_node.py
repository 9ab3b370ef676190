"""What the supervisor takes for a node: it answers status, and behaves as files in its directory tell it to.

``refuse``: it ends with status 2. ``fail``: with status 1. ``stubborn``: it ignores SIGTERM.
``lives`` has a line for each start.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
from pathlib import Path
from typing import Any

from broker_plugin.admin.server import AdminServer
from broker_plugin.guard import Guard
from broker_plugin.node.config import NodeConfig, load_config, parse_settings
from recovery.store.parent import end_with


async def run(config: NodeConfig) -> None:
    """Be ready (node-1: active) until SIGTERM."""
    ended = asyncio.Event()

    async def status(arguments: dict[str, Any]) -> dict[str, Any]:
        return {"name": config.name, "state": "active" if config.name == "node-1" else "ready"}

    stubborn = (config.dir / "stubborn").exists()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, (lambda: None) if stubborn else ended.set)
    admin = AdminServer(Guard(print, print), config.dir, {"status": status})
    await admin.start()
    print(f"node={config.name} state ready", flush=True)
    print(f"node={config.name} nothing that people want to see", flush=True)
    await ended.wait()
    await admin.stop()
    (config.dir / "ended-cleanly").touch()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--with-parent", type=int, required=True)
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("--set", action="append", default=[])
    options = parser.parse_args()
    end_with(options.with_parent)
    config = load_config(options.config, parse_settings(options.set))
    with (config.dir / "lives").open("a") as lives:
        lives.write(f"{config.timing.lease_ttl}\n")
    for file, exit_status in (("refuse", 2), ("fail", 1)):
        if (config.dir / file).exists():
            print(f"txha: told to {file}", flush=True)
            raise SystemExit(exit_status)
    asyncio.run(run(config))


if __name__ == "__main__":
    main()
