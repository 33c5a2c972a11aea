"""`python -m deploy.nginx`: run the agent that updates nginx's upstreams and sends its reports."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import os
import shlex
import signal
import sys
from pathlib import Path

from deploy.nginx.agent import Agent, AgentSettings

NICENESS = 10
"""Niceness of the agent. Reports can wait, so the agent yields the CPU to nginx and the gateway."""


def main() -> int:
    """Run the agent until SIGTERM or SIGINT."""
    parser = argparse.ArgumentParser(prog="python -m deploy.nginx", description=__doc__)
    parser.add_argument("--url", default="http://127.0.0.1:8000", help="URL of Headway.")
    parser.add_argument("--management-url", default="", help="URL of the REST API (default: that of Headway).")
    parser.add_argument(
        "--upstreams", type=Path, default=Path("/etc/headway/upstreams.conf"), help="Path of upstreams.conf."
    )
    parser.add_argument(
        "--feedback", type=Path, default=Path("/run/headway-nginx.sock"), help="Socket for nginx datagrams."
    )
    parser.add_argument("--reload", default="nginx -s reload", help="Command that reloads nginx.")
    parser.add_argument("--metrics-port", type=int, default=0, help="Loopback port of /metrics (0 disables it).")
    given = parser.parse_args()
    key = os.environ.get("HEADWAY_API_KEY", "")
    if not key:
        parser.error("set HEADWAY_API_KEY to an API key with the scopes route and manage")
    os.nice(NICENESS)
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s")
    settings = AgentSettings(
        given.url.rstrip("/"),
        (given.management_url or given.url).rstrip("/"),
        key,
        given.upstreams,
        given.feedback,
        tuple(shlex.split(given.reload)),
        given.metrics_port,
    )
    with contextlib.suppress(asyncio.CancelledError):
        asyncio.run(_until_signal(Agent(settings)))
    return 0


async def _until_signal(agent: Agent) -> None:
    running = asyncio.ensure_future(agent.run())
    for item in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(item, running.cancel)
    await running


if __name__ == "__main__":
    sys.exit(main())
