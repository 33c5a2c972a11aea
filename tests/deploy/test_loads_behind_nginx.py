"""The real nginx in front of two engines with node managers: it passes on load instructions and cache hints."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.deploy.test_every_door import by_url
from tests.deploy.test_nginx import Fleet as Listed
from tests.deploy.test_nginx import nginx
from tests.gateway.kv.nodes.test_loads_end_to_end import BLOCKS, body
from tests.gateway.kv.nodes.test_routed_loads import routed
from tests.patience import until

pytestmark = pytest.mark.processes


async def test_engines_behind_nginx_load_blocks_and_store_no_ephemeral_prompt(tmp_path: Path) -> None:
    async with routed(tmp_path / "state") as fleet:
        urls = {engine_id: engine.url for engine_id, engine in fleet.engines.items()}
        async with nginx(tmp_path, fleet.gateway.url, Listed(urls)) as proxy:
            other = [{"role": "user", "content": "a prompt that no node is to keep; " * 8}]
            assert (await by_url(proxy.url, body(messages=other, cache_hint="ephemeral"), {}))[0] == 200
            fleet.keep_out("engine-1")
            await until(lambda: fleet.gateway.pool.accepting == {"engine-0"})
            assert (await by_url(proxy.url, body(), {}))[0] == 200
            await until(lambda: fleet.blocks("a") == BLOCKS)
            fleet.keep_out("engine-0")
            await until(lambda: fleet.gateway.pool.accepting == {"engine-1"})
            status, answer, _ = await by_url(proxy.url, body(), {})
            assert (status, answer["usage"]["prompt_tokens_details"]["cached_tokens"]) == (200, 16 * BLOCKS)
            await until(lambda: fleet.loads("whole") == 1)
            hints = [order.hint for engine in fleet.engines.values() for order in engine.orders]
            assert sorted(hints) == ["default", "default", "ephemeral"]
