"""A request's cache hint: whether node managers should keep its KV (Mooncake §5.2)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast, get_args

from gateway.server.http.json_body import BadBodyError
from kvstore.transfer.frames import CacheHint

HINT_HEADER = b"x-headway-cache-hint"
HINT_FIELD = "cache_hint"
DEFAULT: CacheHint = "default"
CONTEXT_CACHE_PIN_S = 3600.0
"""Seconds for which the blocks of a context cache are pinned after each use."""
_HINTS = frozenset(get_args(CacheHint))


def cache_hint(headers: Mapping[bytes, bytes], body: Mapping[str, Any]) -> CacheHint:
    """Return the hint from the header, else from the body, else "default"; raise BadBodyError for another value."""
    header = headers.get(HINT_HEADER)
    if header is None and HINT_FIELD not in body:
        return DEFAULT
    said = header.decode("latin-1") if header is not None else body[HINT_FIELD]
    if isinstance(said, str) and said in _HINTS:
        return cast("CacheHint", said)
    code, name = ("bad_header", HINT_HEADER.decode()) if header is not None else ("bad_field", HINT_FIELD)
    raise BadBodyError(code, f"Send {name} as one of {', '.join(sorted(_HINTS))}.", param=name)


def pin_s(hint: CacheHint) -> float:
    """Return the seconds for which blocks with this hint are pinned."""
    return CONTEXT_CACHE_PIN_S if hint == "context_cache" else 0.0
