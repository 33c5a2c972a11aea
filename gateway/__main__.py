"""The live wing alone: `python -m gateway --state-dir DIR --port P` serves the snapshot that lies in DIR.

It needs neither Django nor a database. The control plane writes `last-known-good.snapshot` into the
directory; a newer file is taken over while the gateway runs.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import sys
import time
from pathlib import Path

import uvicorn

from gateway.app import AppSettings, GatewayApp
from gateway.asgi_types import Receive, Scope, Send
from gateway.bus import InProcessBus
from gateway.edge import Edge, EdgeSettings
from gateway.gateway import SNAPSHOT_TOPIC, Gateway
from gateway.http_protocol import GuardedHttpProtocol
from gateway.settings import GatewaySettings
from gateway.snapshot import encode_snapshot
from gateway.snapshot_store import SnapshotStore

_SECRET_VARIABLE = "SWITCHYARD_FLEET_SECRET"  # noqa: S105 - the variable's name, not the secret
_LOOK_S = 1.0


class StandaloneGateway:
    """The ASGI app of a gateway without a control plane in the same process."""

    def __init__(self, state_dir: Path, fleet_secret: bytes) -> None:
        settings = GatewaySettings()
        self._store = SnapshotStore(state_dir, settings.snapshot_max_age_s)
        self._bus = InProcessBus()
        self._gateway = Gateway(self._bus, fleet_secret=fleet_secret, state_dir=state_dir, settings=settings)
        self._app = GatewayApp(self._gateway, AppSettings(scrape_token=os.environ.get("SWITCHYARD_SCRAPE_TOKEN", "")))
        self._watch: asyncio.Task[None] | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one ASGI connection."""
        if scope["type"] == "http":
            await self._app(scope, receive, send)
        elif scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        else:
            await receive()
            await send({"type": "websocket.close", "code": 1003})

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        await self._gateway.start()
        self._watch = asyncio.create_task(self._follow_file(), name="snapshot file")
        await send({"type": "lifespan.startup.complete"})
        await receive()
        self._watch.cancel()
        await self._gateway.stop()
        await send({"type": "lifespan.shutdown.complete"})

    async def _follow_file(self) -> None:
        """Publish a newer snapshot on our own bus whenever the file holds one."""
        while True:
            await asyncio.sleep(_LOOK_S)
            snapshot = await asyncio.to_thread(self._store.load, time.time())
            if snapshot is not None and snapshot.version > self._gateway.snapshot_version:
                self._bus.publish(SNAPSHOT_TOPIC, encode_snapshot(snapshot))


def main() -> int:
    """Serve until SIGINT or SIGTERM; 2 where a setting is missing."""
    parser = argparse.ArgumentParser(prog="python -m gateway", description=__doc__)
    parser.add_argument("--state-dir", type=Path, default=Path("var"))
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8000)
    parser.add_argument("--allowed-host", action="append", default=None, help="Host header to accept; repeatable")
    options = parser.parse_args()
    secret = os.environ.get(_SECRET_VARIABLE, "")
    if not secret:
        print(f"Set {_SECRET_VARIABLE} to the fleet's secret, the same as in the control plane.", file=sys.stderr)  # noqa: T201
        return 2
    app = StandaloneGateway(options.state_dir, secret.encode())
    edge = Edge(app, EdgeSettings(allowed_hosts=tuple(options.allowed_host)) if options.allowed_host else None)
    with contextlib.suppress(KeyboardInterrupt):
        uvicorn.run(
            edge,
            host=options.host,
            port=options.port,
            http=GuardedHttpProtocol,
            loop="uvloop",
            access_log=False,
            server_header=False,
            log_level="warning",
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
