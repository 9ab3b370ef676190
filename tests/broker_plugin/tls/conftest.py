"""Scenes with encrypted connections."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
import uvloop

from broker_plugin.tls.contexts import Asking
from tests.support.tls_listening import Listening, Scene


@pytest.fixture(params=["asyncio", "uvloop"])
def play(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., None]:
    """Runs a scene on this loop."""

    def run(scene: Scene, asking: Asking = "ignore") -> None:
        async def within() -> None:
            async with Listening(tmp_path, asking) as listening:
                await scene(listening)

        (uvloop.run if request.param == "uvloop" else asyncio.run)(within())

    return run
