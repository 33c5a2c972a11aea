"""The flags of an engine's start command that make its cache knowable: KV events and block size."""

from __future__ import annotations

import json
from shlex import quote
from urllib.parse import urlsplit

_MOST = 65_535
_DEFAULT = 5557


def events_flag(url: str, *, sglang: bool = False) -> str:
    """Return the flag that makes the engine at `url` publish KV events, quoted for a shell."""
    events, replay = usual_ports(url)[0]
    config: dict[str, object] = {} if sglang else {"enable_kv_cache_events": True}
    config |= {"publisher": "zmq", "endpoint": f"tcp://*:{events}", "replay_endpoint": f"tcp://*:{replay}"}
    return f"--kv-events-config {quote(json.dumps(config, separators=(',', ':')))}"


def block_size_flag(tokens: int, *, sglang: bool = False) -> str:
    """Return the flag that sets the engine's block size."""
    return f"{'--page-size' if sglang else '--block-size'} {tokens}"


def usual_ports(url: str) -> list[tuple[int, int]]:
    """Return the possible ports for events and replay of an engine at `url`: those of our flag, then vLLM's default.

    Ours differ between engines of one host as their HTTP ports do.
    """
    http = urlsplit(url).port or 8000
    own = [(http + 10_000, http + 20_000)] if http + 20_000 <= _MOST else []
    return [*own, (_DEFAULT, _DEFAULT + 1)]
