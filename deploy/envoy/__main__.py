"""`python -m deploy.envoy`: the endpoint picker for Envoy and the Gateway API."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
import sys
from pathlib import Path

from deploy.envoy.certificate import PickerSettingError
from deploy.envoy.picker import PickerSettings, served


def main() -> int:
    """Run the endpoint picker until SIGTERM or SIGINT."""
    parser = argparse.ArgumentParser(prog="python -m deploy.envoy", description=__doc__)
    parser.add_argument("--url", default="http://127.0.0.1:8000", help="URL of Headway.")
    parser.add_argument("--listen", default="127.0.0.1:9002", help="Address of the gRPC server.")
    parser.add_argument(
        "--engine", action="append", default=[], help="Fallback engine until a decision names one (repeatable)."
    )
    parser.add_argument("--late", type=float, default=1.0, help="Seconds to wait for a decision before failing open.")
    parser.add_argument("--metrics-port", type=int, default=0, help="Loopback port of /metrics (0 disables it).")
    transport = parser.add_mutually_exclusive_group()
    transport.add_argument(
        "--cert-dir", type=Path, help="Folder with tls.crt and tls.key, read again on change (default: self-signed)."
    )
    transport.add_argument("--plaintext", action="store_true", help="Serve without TLS.")
    parser.add_argument("--health-listen", default="", help="Further address of gRPC health, without TLS, for probes.")
    parser.add_argument(
        "--objectives",
        metavar="NAMESPACE/POOL",
        help="Take priorities from the InferenceObjectives of this InferencePool.",
    )
    parser.add_argument(
        "--subset-header", action="store_true", help="Let x-gateway-destination-endpoint-subset limit the endpoints."
    )
    given = parser.parse_args()
    key = os.environ.get("HEADWAY_API_KEY", "")
    if not key:
        parser.error("set HEADWAY_API_KEY to an API key with the scope route")
    settings = PickerSettings(
        given.url.rstrip("/"),
        key,
        given.listen,
        tuple(given.engine),
        given.late,
        given.metrics_port,
        plaintext=given.plaintext,
        cert_dir=given.cert_dir,
        health_listen=given.health_listen,
        objectives=_pool(parser, given.objectives),
        subset_header=given.subset_header,
    )
    logging.basicConfig(format="%(levelname)s %(message)s")
    logging.getLogger("headway.picker").setLevel(logging.INFO)
    try:
        asyncio.run(_until_signal(settings))
    except PickerSettingError as error:
        parser.error(str(error))
    return 0


def _pool(parser: argparse.ArgumentParser, text: str | None) -> tuple[str, str] | None:
    namespace, _, name = (text or "").partition("/")
    if text and not (namespace and name):
        parser.error(f"--objectives: {text} is not NAMESPACE/POOL")
    return (namespace, name) if text else None


async def _until_signal(settings: PickerSettings) -> None:
    ended = asyncio.Event()
    for item in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(item, ended.set)
    async with served(settings):
        await ended.wait()


if __name__ == "__main__":
    sys.exit(main())
