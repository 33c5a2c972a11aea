"""A proxy can limit a decision to some addresses, as endpoint pickers must."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.gateway.scripted_engine import ScriptedEngine
from tests.gateway.served_gateway import MODEL, ServedGateway, served

ROUTE = "/api/v1/route"
AMONG = "x-gateway-destination-endpoint-subset"


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[ServedGateway]:
    async with ScriptedEngine() as one, ScriptedEngine() as two, served([one.url, two.url], tmp_path) as gateway:
        yield gateway


def addresses(gateway: ServedGateway) -> list[str]:
    return [engine.entry.url.removeprefix("http://") for engine in gateway.pool.engines.values()]


@pytest.mark.parametrize("wait", [True, False])
@pytest.mark.parametrize("prompt", [{"block_hashes": [1, 2, 3]}, {"prompt": "x" * 40}])
async def test_only_allowed_engines_are_chosen(gateway: ServedGateway, wait: bool, prompt: dict[str, object]) -> None:
    asked = {"model": MODEL, "wait": wait, **prompt}
    for address in addresses(gateway) * 2:
        for allowed in (address, f"192.0.2.1:8000, {address}"):
            # The same prompt, whose blocks another engine has.
            status, answer, _ = await gateway.post(ROUTE, asked, headers={AMONG: allowed})
            assert (status, answer["engine"]["url"]) == (200, f"http://{address}")
            assert [item["engine_id"] for item in answer["candidates"]] == [answer["engine"]["id"]]


async def test_all_engines_are_used_if_all_are_allowed(gateway: ServedGateway) -> None:
    allowed = ",".join(addresses(gateway))
    chosen = set()
    for number in range(8):
        asked = {"model": MODEL, "wait": False, "block_hashes": [number]}
        _, answer, _ = await gateway.post(ROUTE, asked, headers={AMONG: allowed})
        chosen.add(answer["engine"]["url"].removeprefix("http://"))
    assert chosen == set(addresses(gateway))


@pytest.mark.parametrize("allowed", ["", ",", "192.0.2.1:8000"])
async def test_no_eligible_engine_is_503_and_reserves_nothing(gateway: ServedGateway, allowed: str) -> None:
    asked = {"model": MODEL, "wait": False, "block_hashes": [1, 2, 3]}
    status, answer, headers = await gateway.post(ROUTE, asked, headers={AMONG: allowed})
    assert (status, answer["error"]["code"]) == (503, "no_engine")
    assert headers["x-llm-d-request-dropped-reason"] == "rejected-no-endpoints"
    assert gateway.is_idle()
