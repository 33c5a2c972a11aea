"""Start flags with which an engine's cache contents can be tracked: KV events and block size."""

from __future__ import annotations

import json
from shlex import quote
from urllib.parse import urlsplit

_MOST = 65_535
_DEFAULT = 5557


def events_flag(url: str, *, sglang: bool = False) -> str:
    """Return the flag that enables KV events of the engine at `url`, quoted for a shell."""
    events, replay = usual_ports(url)[0]
    config: dict[str, object] = {} if sglang else {"enable_kv_cache_events": True}
    config |= {"publisher": "zmq", "endpoint": f"tcp://*:{events}", "replay_endpoint": f"tcp://*:{replay}"}
    return f"--kv-events-config {quote(json.dumps(config, separators=(',', ':')))}"


def block_size_flag(tokens: int, *, sglang: bool = False) -> str:
    """Return the flag that sets the engine's block size."""
    return f"{'--page-size' if sglang else '--block-size'} {tokens}"


def usual_ports(url: str) -> list[tuple[int, int]]:
    """Return the likely ports for events and replay of an engine at `url`: the ports of `events_flag`, then vLLM's
    defaults.

    The ports of `events_flag` are derived from the HTTP port, so they differ between engines of one host.
    """
    http = urlsplit(url).port or 8000
    own = [(http + 10_000, http + 20_000)] if http + 20_000 <= _MOST else []
    return [*own, (_DEFAULT, _DEFAULT + 1)]
