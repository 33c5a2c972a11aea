"""The flags of an engine's start line that make its cache knowable: KV events and block size."""

from __future__ import annotations

import json
from shlex import quote
from urllib.parse import urlsplit

_MOST = 65_535
_USUAL = 5557


def events_flag(url: str, *, sglang: bool = False) -> str:
    """Return the flag that makes the engine at `url` publish KV events, quoted for a shell."""
    events, replay = _ports(urlsplit(url).port or 8000)
    config: dict[str, object] = {} if sglang else {"enable_kv_cache_events": True}
    config |= {"publisher": "zmq", "endpoint": f"tcp://*:{events}", "replay_endpoint": f"tcp://*:{replay}"}
    return f"--kv-events-config {quote(json.dumps(config, separators=(',', ':')))}"


def block_size_flag(tokens: int, *, sglang: bool = False) -> str:
    """Return the flag that sets the engine's block size."""
    return f"{'--page-size' if sglang else '--block-size'} {tokens}"


def _ports(http: int) -> tuple[int, int]:
    """Return ports for events and replay that differ between engines of one host as their HTTP ports do."""
    events, replay = http + 10_000, http + 20_000
    return (events, replay) if replay <= _MOST else (_USUAL, _USUAL + 1)
