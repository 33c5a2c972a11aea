"""The two servers that bench.gateway.decision_api compares, each in a separate process."""

from __future__ import annotations

import asyncio
import sys
import tempfile
import time
from hashlib import sha256
from pathlib import Path
from random import Random

import uvicorn
import uvloop

from gateway.app import GatewayApp
from gateway.base.asgi_types import AsgiApp, Receive, Scope, Send
from gateway.base.settings import GatewaySettings
from gateway.bus.bus import InProcessBus
from gateway.contracts.snapshot import ApiKeyEntry, EngineEntry, PoolEntry, Snapshot, encode_snapshot
from gateway.gateway import SNAPSHOT_TOPIC, Gateway
from gateway.server.http.edge import Edge
from gateway.server.http.http_protocol import GuardedHttpProtocol
from gateway.server.process.tuning import settle_heap
from kvstore.keys.block_keys import rekey_hashes
from kvstore.keys.keyring import Keyring
from routing.ledger.fleet_view import EngineFacts

API_KEY = "hw_benchmark_only"
MODEL = "bench"
ENGINES = 32
HASHES = 24
GROUPS = 200
_NULL_BODY = b'{"ok":true}'
_NULL_HEADERS = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(_NULL_BODY))]


async def null_app(scope: Scope, receive: Receive, send: Send) -> None:
    """Read the request's body and send a fixed answer: the minimum work for a POST."""
    await receive()
    await send({"type": "http.response.start", "status": 200, "headers": _NULL_HEADERS})
    await send({"type": "http.response.body", "body": _NULL_BODY})


def snapshot(engine_url: str, engines: int) -> Snapshot:
    """Return a fleet of this many engines and one API key."""
    # All engines share one address that answers their health probes; no request is sent to them.
    entries = tuple(
        EngineEntry(engine_id=f"engine-{number:02}", name=f"e{number}", pool_id="pool", url=engine_url)
        for number in range(engines)
    )
    key = ApiKeyEntry(key_id="bench", sha256=sha256(API_KEY.encode()).hexdigest(), tenant_id="bench")
    pool = PoolEntry(pool_id="pool", name="pool", region="here", served_model=MODEL)
    return Snapshot(version=1, published_at=0.0, pools=(pool,), engines=entries, api_keys=(key,))


def hash_groups() -> list[list[int]]:
    """Return the block hashes of GROUPS long prompts. Requests share the beginning of one of them."""
    rng = Random(11)
    return [[rng.getrandbits(64) for _ in range(HASHES)] for _ in range(GROUPS)]


def shared_hashes(groups: list[list[int]], rng: Random) -> list[int]:
    """Return the block hashes of one prompt, which shares 6, 12, or 24 of them with others."""
    shared = rng.choice((6, 12, 24))
    return rng.choice(groups)[:shared] + [rng.getrandbits(64) for _ in range(HASHES - shared)]


def follow_events(gateway: Gateway) -> None:
    """Put the pool into the state after KV events that report each group on two engines."""
    pool = gateway.pools["pool"]
    now = time.monotonic()
    pool.router.set_engines([EngineFacts(engine_id, 1, True) for engine_id in sorted(pool.engines)], now)
    rng = Random(12)
    for group in hash_groups():
        keys = rekey_hashes(pool.seed("bench"), group)
        for engine_id in rng.sample(sorted(pool.engines), 2):
            pool.router.blocks_stored(engine_id, keys)


async def _serve(app: AsgiApp, port: int, *, guarded: bool) -> None:
    config = uvicorn.Config(
        app,
        port=port,
        http=GuardedHttpProtocol if guarded else "httptools",
        lifespan="off",
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,
    )
    await uvicorn.Server(config).serve()


async def _serve_gateway(port: int, engine_url: str, engines: int) -> None:
    with tempfile.TemporaryDirectory() as state:
        bus = InProcessBus()
        bus.publish(SNAPSHOT_TOPIC, encode_snapshot(snapshot(engine_url, engines)))
        settings = GatewaySettings(report_stale_s=60.0)
        gateway = Gateway(bus, keyring=Keyring.of(b"benchmark"), state_dir=Path(state), settings=settings)
        await gateway.start()
        follow_events(gateway)
        # The product's own servers do the same after their start.
        settle_heap()
        try:
            app = GatewayApp(gateway)
            await _serve(Edge(app, fast_path=app), port, guarded=True)
        finally:
            await gateway.stop()


def main() -> None:
    """Serve until killed: `null PORT`, or `gateway PORT ENGINE_URL [ENGINES]`."""
    kind, port, rest = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
    engines = int(rest[1]) if len(rest) > 1 else ENGINES
    serving = _serve(null_app, port, guarded=False) if kind == "null" else _serve_gateway(port, rest[0], engines)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serving)


if __name__ == "__main__":
    main()
