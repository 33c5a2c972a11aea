"""Serves the example chat: `HEADWAY_API_KEY=hw_… python -m examples.chat --gateway http://127.0.0.1:8000`."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from aiohttp import web

from examples.chat.backend import ChatBackend


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve the example chat until SIGINT or SIGTERM."""
    parser = argparse.ArgumentParser(prog="python -m examples.chat", description=__doc__)
    parser.add_argument("--gateway", default="http://127.0.0.1:8000", help="base URL of Headway")
    parser.add_argument("--model", default="demo-8b")
    parser.add_argument("--host", default="127.0.0.1")
    parser.add_argument("--port", type=int, default=8090)
    options = parser.parse_args(arguments)
    api_key = os.environ.get("HEADWAY_API_KEY", "")
    if not api_key:
        parser.error("set HEADWAY_API_KEY to an API key with the scopes infer and route")
    backend = ChatBackend(options.gateway, options.model, api_key)
    web.run_app(backend.app(), host=options.host, port=options.port, print=None)
    return 0


if __name__ == "__main__":
    sys.exit(main())
