"""The composition root of the server: the gateway in front, Django and its websockets behind, one edge around all."""

from __future__ import annotations

import logging
import os

import django
from asgiref.sync import sync_to_async
from django.apps import apps
from django.conf import settings
from django.db import DatabaseError

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.project.settings")
if not apps.ready:
    # `manage.py up` has done so already, and given the log a file that a second set-up would take away.
    django.setup(set_prefix=False)

# These need a Django that is set up.
from controlplane.platform.bus import get_bus
from controlplane.project.checks import refuse_unsafe
from controlplane.project.last_records import hear_records, store_last_records
from controlplane.project.pages import edge_settings, pages, sockets
from controlplane.project.pre_release import refuse
from controlplane.project.state_lock import hold_state
from controlplane.publication.snapshot import publish
from controlplane.request_log.recent_decisions import offer
from gateway.app import AppSettings, GatewayApp
from gateway.base.asgi_types import AsgiApp, Receive, Scope, Send
from gateway.base.settings import GatewaySettings
from gateway.bus.bus_metrics import BusMetrics
from gateway.bus.redis_bus import RedisBus
from gateway.bus.wake_up_age import WakeUpAge
from gateway.gateway import Gateway
from gateway.http.edge import Edge
from gateway.process.drain import Drain
from web.live.feed import fleet_feed

logger = logging.getLogger(__name__)


class Switchyard:
    """Sends each ASGI connection to the part that serves it, and starts and stops the live wing."""

    def __init__(self, gateway: Gateway, pages: AsgiApp, sockets: AsgiApp) -> None:
        self._gateway = gateway
        self._gateway_app = GatewayApp(gateway, AppSettings(scrape_token=settings.SCRAPE_TOKEN))
        offer(self._gateway_app.recent)
        self.fast_lane = self._gateway_app
        self._pages = pages
        self._sockets = sockets

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one ASGI connection."""
        if scope["type"] == "http":
            app = self._gateway_app if self._gateway_app.handles(scope["path"]) else self._pages
            await app(scope, receive, send)
        elif scope["type"] == "websocket":
            await self._sockets(scope, receive, send)
        elif scope["type"] == "lifespan":
            await self._lifespan(receive, send)

    async def _lifespan(self, receive: Receive, send: Send) -> None:
        await receive()
        try:
            await self._start()
        except Exception as error:
            # The edge of the process: the server must hear why it cannot start.
            await send({"type": "lifespan.startup.failed", "message": f"{type(error).__name__}: {error}"})
            raise
        await send({"type": "lifespan.startup.complete"})
        await receive()
        await self._gateway.stop()
        if not settings.REDIS_URL:
            # What ended last is on the bus now, and no job runs any more.
            await sync_to_async(store_last_records)()
        await send({"type": "lifespan.shutdown.complete"})

    async def _start(self) -> None:
        refuse_unsafe()
        if not settings.REDIS_URL:
            hold_state(settings.STATE_DIR)
        await sync_to_async(refuse)()
        try:
            await sync_to_async(publish)()
        except DatabaseError as error:
            # The gateway then serves from its last-known-good snapshot.
            logger.warning("the database cannot be read", extra={"error": str(error)})
        fleet_feed()
        if not settings.REDIS_URL:
            # Heard from the first request on; the job that stores them starts later.
            hear_records()
        await self._gateway.start()


def _compose() -> tuple[Edge, Drain]:
    bus = get_bus()
    gateway = Gateway(
        bus,
        fleet_secret=settings.FLEET_SECRET,
        state_dir=settings.STATE_DIR,
        settings=GatewaySettings(
            engine_bearer=settings.ENGINE_API_KEY,
            decisions_kept_per_s=float(settings.DECISIONS_PER_S),
            recording=settings.RECORDING_BYTES > 0,
        ),
    )
    WakeUpAge(gateway.metrics.registry, bus)
    if isinstance(bus, RedisBus):
        BusMetrics(gateway.metrics.registry, bus)
    app = Switchyard(gateway, pages(), sockets())
    return Edge(app, edge_settings(), gateway.metrics.rejected_input.inc, fast_lane=app.fast_lane), app.fast_lane.drain


application, drain = _compose()
