"""A real Gateway behind the real app, edge and server on loopback, over engines of the test."""

from __future__ import annotations

import asyncio
import io
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from hashlib import sha256
from itertools import zip_longest
from pathlib import Path
from typing import Any

import aiohttp
import uvicorn

from gateway.app import AppSettings, GatewayApp
from gateway.base.settings import CLIENT_IDLE_S, GatewaySettings
from gateway.bus.bus import Bus, InProcessBus
from gateway.contracts.snapshot import ApiKeyEntry, EngineEntry, PoolEntry, Snapshot, encode_snapshot
from gateway.gateway import SNAPSHOT_TOPIC, Gateway
from gateway.server.http.edge import Edge, EdgeSettings
from gateway.server.http.http_protocol import GuardedHttpProtocol
from kvstore.keys.keyring import Keyring
from tests.gateway.ports import listen

KEY = "hw_test_key_of_tenant_a"
OTHER_KEY = "hw_test_key_of_tenant_b"
MODEL = "tiny"
SECRET = b"a fleet secret that is for tests only"
KEYRING = Keyring.of(SECRET)
CHAT = "/v1/chat/completions"
BODY = {"model": MODEL, "messages": [{"role": "user", "content": "x" * 40}]}
STREAM = {**BODY, "stream": True}


class ServedGateway:
    """The gateway's address and parts."""

    def __init__(self, url: str, gateway: Gateway, app: GatewayApp, client: aiohttp.ClientSession) -> None:
        self.url = url
        self.gateway = gateway
        self.app = app
        self.client = client

    @property
    def pool(self) -> Any:
        """Return the only pool."""
        return self.gateway.pools["pool"]

    async def post(
        self, path: str, body: Any = None, *, key: str | None = KEY, headers: dict[str, str] | None = None
    ) -> tuple[int, Any, dict[str, str]]:
        """Return status, decoded JSON body and headers of the response."""
        sent = {"content-type": "application/json", **(headers or {})}
        if key is not None:
            sent["authorization"] = f"Bearer {key}"
        argument = {"data": io.BytesIO(body)} if isinstance(body, bytes) else {"json": body}
        async with self.client.post(self.url + path, headers=sent, **argument) as response:
            return (
                response.status,
                await response.json(),
                {name.lower(): value for name, value in response.headers.items()},
            )

    async def get(self, path: str, *, key: str | None = KEY) -> tuple[int, Any]:
        """Return status and decoded JSON body of the response."""
        headers = {"authorization": f"Bearer {key}"} if key is not None else {}
        async with self.client.get(self.url + path, headers=headers) as response:
            return response.status, await response.json()

    async def stream(self, body: Any = STREAM, **headers: str) -> tuple[list[bytes], Any]:
        """Return the chunks of a streamed chat completion and the response's headers."""
        sent = {"authorization": f"Bearer {KEY}", **headers}
        async with self.client.post(self.url + CHAT, json=body, headers=sent) as response:
            assert response.status == 200, await response.read()
            return [chunk async for chunk in response.content.iter_any()], response.headers

    async def decided(self, **more: Any) -> str:
        """Return the id of a decision about a prompt of four blocks."""
        question = {"model": MODEL, "block_hashes": [1, 2, 3, 4], "wait": False, **more}
        status, answer, _ = await self.post("/api/v1/route", question)
        assert status == 200
        return str(answer["decision_id"])

    async def report(self, decision_id: str, verb: str, body: Any = None, **more: Any) -> Any:
        """Report an outcome of a decision, as its caller would."""
        return await self.post(f"/api/v1/requests/{decision_id}/{verb}", body or {}, **more)

    def is_idle(self) -> bool:
        """Return whether the only pool has neither a reservation nor a queued request."""
        router = self.pool.router
        router.check()
        return len(router.reservations) == 0 and len(router.waiting) == 0

    async def metrics(self) -> str:
        """Return the metrics text."""
        async with self.client.get(self.url + "/metrics") as response:
            assert response.status == 200
            return await response.text()


def snapshot(
    engine_urls: Sequence[str], *, roles: Sequence[str] = (), ranks: Sequence[int] = (), **pool: Any
) -> Snapshot:
    """Return a snapshot of one pool over these engines, with an operator's key of tenant a and a key of tenant b."""
    addresses = zip_longest(engine_urls, ranks)
    return Snapshot(
        version=1,
        published_at=time.time(),
        pools=(
            PoolEntry(
                pool_id="pool", name="pool", region="here", **{"served_model": MODEL, "block_tokens": 16, **pool}
            ),
        ),
        engines=tuple(
            EngineEntry(engine_id=f"engine-{number}", name=f"e{number}", pool_id="pool", url=url, role=role, rank=rank)
            for number, ((url, rank), role) in enumerate(zip_longest(addresses, roles, fillvalue="mixed"))
        ),
        api_keys=(
            ApiKeyEntry(
                key_id="ka",
                sha256=sha256(KEY.encode()).hexdigest(),
                tenant_id="tenant-a",
                scopes=("infer", "route", "manage"),
            ),
            ApiKeyEntry(key_id="kb", sha256=sha256(OTHER_KEY.encode()).hexdigest(), tenant_id="tenant-b"),
        ),
    )


@asynccontextmanager
async def served(
    engine_urls: Sequence[str],
    state_dir: Path,
    *,
    settings: AppSettings | None = None,
    edge: EdgeSettings | None = None,
    gateway_settings: GatewaySettings | None = None,
    bus: Bus | None = None,
    keyring: Keyring = KEYRING,
    **pool: Any,
) -> AsyncIterator[ServedGateway]:
    """Serve a gateway over these engines during the block; pass a `bus` to publish other snapshots."""
    bus = bus or InProcessBus()
    if engine_urls:
        bus.publish(SNAPSHOT_TOPIC, encode_snapshot(snapshot(engine_urls, **pool)))
    gateway = Gateway(
        bus,
        keyring=keyring,
        state_dir=state_dir,
        settings=gateway_settings or GatewaySettings(probe_interval_s=0.1),
    )
    app = GatewayApp(gateway, settings)
    listener = listen()
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    config = uvicorn.Config(
        Edge(app, edge, gateway.metrics.rejected_input.inc, fast_path=app),
        http=GuardedHttpProtocol,
        lifespan="off",
        log_config=None,
        access_log=False,
        timeout_graceful_shutdown=1,
        # uvicorn's default of 5 s could close a connection just when the client, who keeps it for longer, uses it.
        timeout_keep_alive=CLIENT_IDLE_S,
    )
    server = uvicorn.Server(config)
    await gateway.start()
    serving = asyncio.create_task(server._serve([listener]))
    while not server.started:
        await asyncio.sleep(0.005)
    try:
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as client:
            yield ServedGateway(url, gateway, app, client)
    finally:
        server.should_exit = True
        await serving
        await gateway.stop()
