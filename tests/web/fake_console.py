"""Serves the console over a fake fleet: `python -m tests.web.fake_console --port 18500`.

It keeps its state in HEADWAY_STATE_DIR, and creates the account op / op-password there.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import os
import time
from collections.abc import Callable

import django
import msgspec
import uvicorn

from gateway.contracts.fleet_sample import FleetSample

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.project.settings")
if __name__ == "__main__":
    django.setup()

NAME, PASSWORD = "op", "op-password"
VIEWER = "viewer"
"""A person who may read and change nothing; has the same password."""
HISTORY_S = 300
PERIOD_S = 0.5
HOUR_S = 3600
COARSE_S = 5
KEEP_S = 2.0


def prepare(arguments: argparse.Namespace) -> None:
    """Create the database, the accounts, and the engines as registered ones."""
    from django.contrib.auth.models import User
    from django.core.management import call_command

    from controlplane.access.models.role_grant import RoleGrant
    from controlplane.fleet.models.engine import Engine
    from controlplane.fleet.models.pool import Pool
    from controlplane.fleet.models.region import Region
    from controlplane.platform.role import Role
    from controlplane.policies.models.policy import Policy
    from tests.web.fake_fleet import FakeFleet

    call_command("migrate", verbosity=0)
    if User.objects.filter(username=NAME).exists():
        return
    for name, role in ((NAME, Role.OPERATOR), (VIEWER, Role.VIEWER)):
        user = User.objects.create_user(name, password=PASSWORD)
        RoleGrant.objects.create(user=user, role=role)
    sample = FakeFleet(max(1, arguments.engines), arguments.pools).sample_at(0.0, 0.0)
    region = Region.objects.create(slug="eu-west", name="eu-west")
    for pool in sample.pools:
        policy = Policy.objects.create(slug=pool.pool_id, name=pool.name)
        Pool.objects.create(
            slug=pool.pool_id, name=pool.name, region=region, served_model=pool.served_model, policy=policy
        )
    pools = {pool.slug: pool for pool in Pool.objects.all()}
    Engine.objects.bulk_create(
        Engine(engine_id=engine.engine_id, name=engine.name, pool=pools[engine.pool_id], url=url, connect_url=url)
        for number, engine in enumerate((without_last(sample) if arguments.removed_ago else sample).engines)
        for url in [f"http://127.0.0.1:{20_000 + number}"]
    )


def console() -> Callable[..., object]:
    """Return Django and the websocket as one ASGI app, without the live components."""
    from channels.auth import AuthMiddlewareStack
    from channels.routing import ProtocolTypeRouter, URLRouter
    from django.core.handlers.asgi import ASGIHandler

    from web.live.routing import websocket_urlpatterns
    from web.live.socket_origin import SameOrigin

    sockets = SameOrigin(AuthMiddlewareStack(URLRouter(websocket_urlpatterns)))
    return ProtocolTypeRouter({"http": ASGIHandler(), "websocket": sockets})


async def publish(arguments: argparse.Namespace) -> None:
    """Publish the history at once, then continue in real time."""
    from controlplane.history.collector import fleet_collector
    from controlplane.platform.bus import get_bus
    from gateway.contracts.fleet_sample import TOPIC
    from tests.web.fake_fleet import LOST_UNTIL, FakeFleet
    from tests.web.request_log.fake_decisions import FakeGateway, fake_decisions
    from web.live.feed import fleet_feed

    fleet_feed()
    fleet_collector()
    gateway = FakeGateway(get_bus())
    lost_until = math.inf if arguments.never_back else LOST_UNTIL
    fleet = FakeFleet(arguments.engines, arguments.pools, events=not arguments.quiet, lost_until=lost_until)
    start = time.time() - HISTORY_S - arguments.shift
    now = HISTORY_S + arguments.shift
    fine = arguments.young or HISTORY_S
    steps = int(arguments.hours * HOUR_S / COARSE_S)
    past = [] if arguments.young else [now - fine - step * COARSE_S for step in range(steps, 0, -1)]
    for number, t in enumerate((*past, *(now - fine + step * PERIOD_S for step in range(int(fine / PERIOD_S))))):
        if arguments.hole and now - arguments.hole[0] < t < now - arguments.hole[1]:
            continue
        sample = fleet.sample_at(t, start)
        if arguments.removed_ago and t >= now - arguments.removed_ago:
            sample = without_last(sample)
        get_bus().publish(TOPIC, msgspec.msgpack.encode(sample))
        if number % 100 == 0:
            await asyncio.to_thread(keep, start + t)
    kept = time.monotonic()
    while True:
        sample = fleet.sample_at(time.time() - start, start)
        if arguments.removed_ago:
            sample = without_last(sample)
        get_bus().publish(TOPIC, msgspec.msgpack.encode(sample))
        if time.monotonic() - kept > KEEP_S:
            kept = time.monotonic()
            gateway.decisions = fake_decisions(sample)
            await asyncio.to_thread(keep, time.time())
        await asyncio.sleep(PERIOD_S)


def without_last(sample: FleetSample) -> FleetSample:
    """Return the sample without its last engine."""
    return msgspec.structs.replace(sample, engines=sample.engines[:-1])


def keep(at: float) -> None:
    """Store roll-ups as the roll-up job does."""
    from django.db import connection

    from controlplane.history import rollups as rollup
    from controlplane.history.collector import fleet_collector
    from controlplane.platform.bus import get_bus

    rollup.keep(fleet_collector(), get_bus(), at)
    connection.close()


async def serve(arguments: argparse.Namespace) -> None:
    """Run the server and the fleet in one event loop."""
    config = uvicorn.Config(console(), host="127.0.0.1", port=arguments.port, log_level="warning", lifespan="off")
    fleet = asyncio.create_task(publish(arguments)) if arguments.engines else None
    await uvicorn.Server(config).serve()
    if fleet is not None:
        fleet.cancel()


def main() -> None:
    """Parse the arguments, and serve until interrupted."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=18500)
    parser.add_argument("--engines", type=int, default=8, help="number of engines; 0: no fleet")
    parser.add_argument("--pools", type=int, default=2)
    parser.add_argument("--quiet", action="store_true", help="simulate no faults")
    parser.add_argument("--never-back", action="store_true", help="the lost engine stays lost")
    parser.add_argument("--young", type=float, default=0, help="limit the history to this many seconds")
    parser.add_argument("--shift", type=float, default=0, help="start this many seconds into the simulated events")
    parser.add_argument("--hours", type=float, default=1.0, help="hours of stored history")
    parser.add_argument(
        "--removed-ago", type=float, default=0, help="remove the last engine this many seconds before the start"
    )
    parser.add_argument(
        "--hole", type=float, nargs=2, help="omit samples between these two times, in seconds before the start"
    )
    arguments = parser.parse_args()
    prepare(arguments)
    asyncio.run(serve(arguments))


if __name__ == "__main__":
    main()
