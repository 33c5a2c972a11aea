"""Two scripted engines behind the proxies."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.gateway.scripted_engine import ScriptedEngine


@pytest.fixture
async def engines() -> AsyncIterator[list[ScriptedEngine]]:
    async with ScriptedEngine() as one, ScriptedEngine() as two:
        yield [one, two]
