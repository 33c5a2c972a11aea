"""The ASGI app of a gateway without a control plane in the same process."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from gateway.app import AppSettings, GatewayApp
from gateway.base.asgi_types import Receive, Scope, Send
from gateway.base.settings import GatewaySettings
from gateway.bus.bus import Bus, InProcessBus
from gateway.bus.snapshot_store import SnapshotStore
from gateway.contracts.snapshot import encode_snapshot
from gateway.gateway import SNAPSHOT_TOPIC, Gateway
from gateway.reports.recent_answers import RecentAnswers
from gateway.server.http.pages_relay import PagesRelay
from kvstore.keys.keyring import Keyring

if TYPE_CHECKING:
    from gateway.pools.pool.request_listener import RequestListener
    from gateway.proxy.request_spans import Tracing

_CHECK_S = 1.0


class StandaloneGateway:
    """Serves the snapshots of a shared `bus`; without a bus, the newest snapshot in `state_dir`.

    Other paths than the gateway's go to `pages`, if that process exists. `on_started` is called once, after the first
    snapshot is active and before the first request.
    """

    def __init__(
        self,
        state_dir: Path,
        keyring: Keyring,
        *,
        bus: Bus | None = None,
        scrape_token: str = "",
        settings: GatewaySettings | None = None,
        pages: PagesRelay | None = None,
        on_started: Callable[[], None] = lambda: None,
        tracing: Tracing | None = None,
        listeners: tuple[RequestListener, ...] = (),
    ) -> None:
        settings = settings or GatewaySettings()
        self._follows_file = bus is None
        self._bus: Bus = bus or InProcessBus()
        self._store = SnapshotStore(state_dir, settings.snapshot_max_age_s)
        self._gateway = Gateway(self._bus, keyring=keyring, state_dir=state_dir, settings=settings)
        app_settings = AppSettings(scrape_token=scrape_token, tracing=tracing, listeners=listeners)
        self._app = GatewayApp(self._gateway, app_settings)
        self.inner_fast_path = self._app
        self.drain = self._app.drain
        self.count_rejected = self._gateway.metrics.rejected_input.inc
        self.registry = self._gateway.metrics.registry
        self._watch: asyncio.Task[None] | None = None
        self._pages = pages
        self._on_started = on_started

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one ASGI connection."""
        if scope["type"] == "lifespan":
            await self._lifespan(receive, send)
        elif scope["type"] == "http" and (self._pages is None or self._app.handles(scope["path"])):
            await self._app(scope, receive, send)
        elif self._pages is not None:
            await self._pages(scope, receive, send)
        else:
            await receive()
            # ASGI: only after `websocket.connect` has been received.
            await send({"type": "websocket.close", "code": 1003})

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        if self._pages is not None:
            await self._pages.start()
        await self._gateway.start()
        RecentAnswers(self._bus, self._app.recent, self._gateway.pools.values)
        if self._follows_file:
            self._watch = asyncio.create_task(self._follow_file(), name="snapshot file")
        self._on_started()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        if self._watch is not None:
            self._watch.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._watch
        await self._gateway.stop()
        if self._pages is not None:
            await self._pages.stop()
        await send({"type": "lifespan.shutdown.complete"})

    async def _follow_file(self) -> None:
        """Publish the snapshot of the file on this process's bus when it is newer."""
        while True:
            await asyncio.sleep(_CHECK_S)
            snapshot = await asyncio.to_thread(self._store.load, time.time())
            if snapshot is not None and snapshot.version > self._gateway.snapshot_version:
                self._bus.publish(SNAPSHOT_TOPIC, encode_snapshot(snapshot))
