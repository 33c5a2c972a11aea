"""Serves the real console over a fleet that does not exist: `python -m tests.web.fake_console --port 18500`.

Its state lies where SWITCHYARD_STATE_DIR says; it makes the account op / op-password there.
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

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.settings")
if __name__ == "__main__":
    django.setup()

NAME, PASSWORD = "op", "op-password"
HISTORY_S = 300
PERIOD_S = 0.5
HOUR_S = 3600
COARSE_S = 15


def prepare() -> None:
    """Make the database and the account."""
    from django.contrib.auth import get_user_model
    from django.core.management import call_command

    call_command("migrate", verbosity=0)
    users = get_user_model().objects
    if not users.filter(username=NAME).exists():
        users.create_user(NAME, password=PASSWORD)


def console() -> Callable[..., object]:
    """Return Django and the websocket as one ASGI app, without the live wing."""
    from channels.auth import AuthMiddlewareStack
    from channels.routing import ProtocolTypeRouter, URLRouter
    from channels.security.websocket import AllowedHostsOriginValidator
    from django.core.handlers.asgi import ASGIHandler

    from web.routing import websocket_urlpatterns

    sockets = AllowedHostsOriginValidator(AuthMiddlewareStack(URLRouter(websocket_urlpatterns)))
    return ProtocolTypeRouter({"http": ASGIHandler(), "websocket": sockets})


async def publish(arguments: argparse.Namespace) -> None:
    """Publish five minutes of past at once, then go on in real time."""
    from controlplane.bus import get_bus
    from gateway.fleet_sample import TOPIC
    from tests.web.fake_fleet import LOST_UNTIL, FakeFleet
    from web.live.feed import fleet_feed

    fleet_feed()
    lost_until = math.inf if arguments.never_back else LOST_UNTIL
    fleet = FakeFleet(arguments.engines, arguments.pools, events=not arguments.quiet, lost_until=lost_until)
    start = time.time() - HISTORY_S - arguments.shift
    now = HISTORY_S + arguments.shift
    fine = arguments.young or HISTORY_S
    past = [] if arguments.young else [now - fine - step * COARSE_S for step in range(HOUR_S // COARSE_S, 0, -1)]
    for t in (*past, *(now - fine + step * PERIOD_S for step in range(int(fine / PERIOD_S)))):
        get_bus().publish(TOPIC, msgspec.msgpack.encode(fleet.sample_at(t, start)))
    while True:
        get_bus().publish(TOPIC, msgspec.msgpack.encode(fleet.sample_at(time.time() - start, start)))
        await asyncio.sleep(PERIOD_S)


async def serve(arguments: argparse.Namespace) -> None:
    """Run the server and the fleet in one loop."""
    config = uvicorn.Config(console(), host="127.0.0.1", port=arguments.port, log_level="warning", lifespan="off")
    fleet = asyncio.create_task(publish(arguments)) if arguments.engines else None
    await uvicorn.Server(config).serve()
    if fleet is not None:
        fleet.cancel()


def main() -> None:
    """Parse the arguments and serve until interrupted."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, default=18500)
    parser.add_argument("--engines", type=int, default=8, help="0: no fleet at all")
    parser.add_argument("--pools", type=int, default=2)
    parser.add_argument("--quiet", action="store_true", help="nothing goes wrong")
    parser.add_argument("--never-back", action="store_true", help="the lost engine stays lost")
    parser.add_argument("--young", type=float, default=0, help="only so many seconds of history")
    parser.add_argument("--shift", type=float, default=0, help="begin so many seconds later in the story")
    arguments = parser.parse_args()
    prepare()
    asyncio.run(serve(arguments))


if __name__ == "__main__":
    main()
