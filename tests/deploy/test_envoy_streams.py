"""The picker protocol through the real Envoy: many streams at once, body modes, subsets, fallbacks, and answers."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import aiohttp
import pytest

from tests.deploy.real_proxy import require_grpc

require_grpc()

from tests.deploy.behind import CHAT, OTHER_APIS, ask, counted
from tests.deploy.test_envoy import picked
from tests.gateway.scripted_engine import ScriptedEngine
from tests.gateway.served_gateway import MODEL, ServedGateway, served
from tests.patience import PATIENCE_S, until

pytestmark = pytest.mark.processes

STREAMS = 200
RESPONSES = "/v1/responses"
BUFFERED = {
    "request_body_mode: FULL_DUPLEX_STREAMED": "request_body_mode: BUFFERED",
    "response_body_mode: FULL_DUPLEX_STREAMED": "response_body_mode: STREAMED",
    "request_trailer_mode: SEND": "request_trailer_mode: SKIP",
    "response_trailer_mode: SEND": "response_trailer_mode: SKIP",
}
EXT_PROC = "                  - name: envoy.filters.http.ext_proc\n"
SUBSET = """                  - name: envoy.filters.http.set_metadata
                    typed_config:
                      "@type": type.googleapis.com/envoy.extensions.filters.http.set_metadata.v3.Config
                      metadata:
                        - metadata_namespace: envoy.lb.subset_hint
                          value: {x-gateway-destination-endpoint-subset: ["%s"]}
"""


@pytest.fixture
async def gateway(engines: list[ScriptedEngine], tmp_path: Path) -> AsyncIterator[ServedGateway]:
    async with served([engine.url for engine in engines], tmp_path) as gateway:
        yield gateway


def urls(engines: list[ScriptedEngine]) -> list[str]:
    return [engine.url for engine in engines]


async def test_200_streams_at_once_are_picked_relayed_and_reported(
    engines: list[ScriptedEngine], gateway: ServedGateway, tmp_path: Path
) -> None:
    body, script = OTHER_APIS[RESPONSES]
    for engine in engines:
        engine.scripts[RESPONSES] = script
        engine.goes_on.clear()
    begun = asyncio.Barrier(STREAMS + 1)

    async def stream(client: aiohttp.ClientSession, url: str, number: int) -> tuple[str, bytes]:
        sent = {"model": MODEL, **body, "instructions": f"{number} " * 20}
        while True:
            async with client.post(url + RESPONSES, json=sent) as answer:
                if answer.status == 429:
                    await asyncio.sleep(float(answer.headers["retry-after"]))
                    continue
                assert answer.status == 200, await answer.text()
                first = await answer.content.readany()
                # All streams have begun, and none has ended.
                await begun.wait()
                return answer.headers["x-headway-decision"], first + await answer.read()

    connector = aiohttp.TCPConnector(limit=0)
    async with (
        picked(tmp_path, gateway.url, urls(engines)) as proxy,
        aiohttp.ClientSession(connector=connector) as client,
        asyncio.timeout(PATIENCE_S),
        asyncio.TaskGroup() as group,
    ):
        tasks = [group.create_task(stream(client, proxy.url, number)) for number in range(STREAMS)]
        await begun.wait()
        for engine in engines:
            engine.goes_on.set()
        answers = await asyncio.gather(*tasks)
        await counted(gateway, completed=STREAMS, first_tokens=STREAMS, cached_tokens=64 * STREAMS)
    assert len({decision for decision, _ in answers}) == STREAMS
    assert {data for _, data in answers} == {b"".join(script)}
    assert sorted(int(sent["instructions"].split()[0]) for engine in engines for sent in engine.bodies) == list(
        range(STREAMS)
    )


async def test_buffered_bodies_reach_the_engine_as_the_gateway_wants_them(
    engines: list[ScriptedEngine], tmp_path: Path
) -> None:
    async with (
        served(urls(engines), tmp_path, isolated=True) as gateway,
        picked(tmp_path, gateway.url, urls(engines), BUFFERED) as proxy,
    ):
        for sent in ({**CHAT, "pad": "x" * 200_000}, {**CHAT, "cache_salt": "mine", "stream": True}):
            status, _, head = await ask(proxy.url, sent)
            assert (status, "x-headway-decision" in head) == (200, True)
        await counted(gateway, completed=2, first_tokens=2, cached_tokens=64)
        bodies = [item for engine in engines for item in engine.bodies]
        assert len(bodies) == 2
        assert all(item["cache_salt"] not in ("", "mine") for item in bodies)


async def test_only_endpoints_that_envoy_allows_get_requests(
    engines: list[ScriptedEngine], gateway: ServedGateway, tmp_path: Path
) -> None:
    allowed = engines[1].url.removeprefix("http://")
    changes = {EXT_PROC: SUBSET % allowed + EXT_PROC}
    async with picked(tmp_path, gateway.url, urls(engines), changes, (engines[1].url,)) as proxy:
        for number in range(6):
            sent = {**CHAT, "messages": [{"role": "user", "content": f"{number} " * 20}]}
            assert (await ask(proxy.url, sent))[0] == 200
        assert (len(engines[0].bodies), len(engines[1].bodies)) == (0, 6)


async def test_request_whose_endpoint_fails_is_served_by_the_next_and_reported(
    engines: list[ScriptedEngine], gateway: ServedGateway, tmp_path: Path
) -> None:
    async with picked(tmp_path, gateway.url, urls(engines)) as proxy:
        answered = await asked_until(proxy.url, lambda: all(engine.bodies for engine in engines))
        engines[0].bodies.clear()
        engines[0].die_before_first_byte = True
        # The last one has two attempts.
        answered += await asked_until(proxy.url, lambda: bool(engines[0].bodies)) - 1
        # Another endpoint's answer is no evidence for the engine that was picked.
        seen = {"completed": answered, "first_tokens": answered, "cached_tokens": 64 * answered}
        await counted(gateway, **seen, failed=1)


async def asked_until(url: str, holds: Callable[[], bool]) -> int:
    """Send requests with different prompts until this holds; return their number. All of them are answered."""
    for number in itertools.count(1):
        sent = {**CHAT, "messages": [{"role": "user", "content": f"{number} hello " * 20}]}
        assert (await ask(url, sent))[0] == 200
        if holds():
            break
    return number


@pytest.mark.parametrize("forged", ["x-gateway-destination-endpoint", "x-gateway-destination-endpoint-subset"])
async def test_clients_cannot_choose_the_endpoint(
    engines: list[ScriptedEngine], gateway: ServedGateway, tmp_path: Path, forged: str
) -> None:
    unused = "127.0.0.1:1"
    async with picked(tmp_path, gateway.url, urls(engines)) as proxy:
        assert (await ask(proxy.url, CHAT, **{forged: unused}))[0] == 200
        (received,) = [headers for engine in engines for headers in engine.headers]
        assert unused not in received.values()


async def test_rejection_reaches_the_client_with_its_reason(
    engines: list[ScriptedEngine], gateway: ServedGateway, tmp_path: Path
) -> None:
    async with picked(tmp_path, gateway.url, urls(engines)) as proxy:
        for engine in engines:
            await engine.stop()
        await until(lambda: gateway.app._unready() == "No engine is available.")
        status, _, head = await ask(proxy.url, CHAT)
        assert (status, head["x-llm-d-request-dropped-reason"]) == (503, "rejected-no-endpoints")
        assert int(head["retry-after"]) >= 1
