"""Prints the CPU time that live viewers cost web: `python -m tests.web.viewer_cost --viewers 200 --engines 1000`.

Samples of the production form pass through the bus at a gateway's rate. The server is the production consumer behind
uvicorn with the web process's settings, and each viewer is a websocket of another process that drops its frames. Only
the server's CPU time is counted, without the time to make the samples. Signing in is left out.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import time
from types import SimpleNamespace
from typing import Any

import django

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.project.settings")
EVERY_S = 0.5
"""Interval of a gateway's samples."""
ROUNDS, SETTLE_S = 40, 8.0


async def _watch_sockets(port: int, viewers: int) -> None:
    import websockets

    async def view() -> None:
        async with websockets.connect(f"ws://127.0.0.1:{port}/ws/fleet", max_size=None, compression=None) as socket:
            async for _ in socket:
                pass

    await asyncio.gather(*(view() for _ in range(viewers)))


async def _serve(port: int, viewers: int, engines: int) -> None:
    import uvicorn
    from channels.routing import URLRouter
    from django.contrib.auth.models import User

    from controlplane.platform.bus import get_bus
    from gateway.contracts.fleet_sample import TOPIC, encode_sample
    from tests.web.fake_fleet import FakeFleet
    from web.live import consumers
    from web.live.feed import fleet_feed
    from web.live.routing import websocket_urlpatterns
    from web.live.session_watch import SessionWatch

    async def all_valid(seats: Any) -> Any:
        return dict.fromkeys(seats)

    watch = SessionWatch(all_valid)
    consumers.session_watch = lambda: watch  # type: ignore[assignment]
    routed = URLRouter(websocket_urlpatterns)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        user, session = User(pk=1, is_superuser=True), SimpleNamespace(session_key="a-session")
        await routed({**scope, "user": user, "session": session}, receive, send)

    config = uvicorn.Config(app, port=port, ws_per_message_deflate=False, lifespan="off", log_level="warning")
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server.serve())
    fleet, now, feed = FakeFleet(engines, 2), time.time(), fleet_feed()
    first = encode_sample(fleet.sample_at(0.0, now))
    get_bus().publish(TOPIC, first)
    command = [sys.executable, "-m", "tests.web.viewer_cost", "--port", str(port), "--viewers", str(viewers)]
    watching = await asyncio.create_subprocess_exec(*command, stderr=subprocess.DEVNULL)
    while len(feed._viewers) < viewers:
        await asyncio.sleep(0.2)
    await asyncio.sleep(SETTLE_S)
    values = [encode_sample(fleet.sample_at(EVERY_S * (number + 1), now)) for number in range(ROUNDS)]
    begin, started = time.process_time(), time.monotonic()
    for number, value in enumerate(values):
        await asyncio.to_thread(get_bus().publish, TOPIC, value)
        await asyncio.sleep(max(0.0, started + EVERY_S * (number + 1) - time.monotonic()))
    used_s, span_s = time.process_time() - begin, ROUNDS * EVERY_S
    sys.stdout.write(f"{len(feed._viewers)} viewers of {engines} engines: {100 * used_s / span_s:.1f} % of a core\n")
    watching.kill()
    server.should_exit = True
    await serving


def main() -> None:
    """Parse the arguments; serve and measure, or with --port be the viewers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--viewers", type=int, default=200)
    parser.add_argument("--engines", type=int, default=1000)
    parser.add_argument("--port", type=int, default=0, help="Be the viewers of a server at this port.")
    given = parser.parse_args()
    if given.port:
        asyncio.run(_watch_sockets(given.port, given.viewers))
        return
    django.setup()
    asyncio.run(_serve(8649, given.viewers, given.engines))


if __name__ == "__main__":
    main()
