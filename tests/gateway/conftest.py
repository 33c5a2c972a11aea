"""A scripted engine, and a gateway that serves it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.gateway.scripted_engine import ScriptedEngine
from tests.gateway.served_gateway import ServedGateway, served


@pytest.fixture
async def engine() -> AsyncIterator[ScriptedEngine]:
    async with ScriptedEngine() as running:
        yield running


@pytest.fixture
async def gateway(engine: ScriptedEngine, tmp_path: Path) -> AsyncIterator[ServedGateway]:
    async with served([engine.url], tmp_path) as running:
        yield running
