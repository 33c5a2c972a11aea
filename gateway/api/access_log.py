"""Converts lines of a proxy's access log to observations. The log needs no prompts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

FORMATS = ("nginx-json",)
_BYTES_PER_TOKEN = 4
OVERHEAD_BYTES = 400
"""Approximate bytes of a request line, headers and JSON around the prompt."""
_SERVED = ("/v1/chat/completions", "/v1/completions")


class SkippedLineError(ValueError):
    """A line that contains no observation; the message states why."""


def observation_of(line: bytes, model: str) -> dict[str, Any]:
    """Return the observation in a line of nginx's JSON log (docs/observe.md), for a request to `model`.

    Raise SkippedLineError for lines of other paths and for incomplete lines.
    """
    try:
        fields = msgspec.json.decode(line, type=dict[str, Any])
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise SkippedLineError("it is not JSON") from error
    if str(fields.get("uri", "")).partition("?")[0] not in _SERVED:
        raise SkippedLineError("it has another path")
    # After a retry nginx names every upstream it tried, the last one answered.
    engine = str(fields.get("upstream", "")).split(",")[-1].strip()
    if engine in ("", "-"):
        raise SkippedLineError("it names no upstream")
    ended_at, total_s = _number(fields, "time"), _number(fields, "request_time")
    if ended_at is None or total_s is None:
        raise SkippedLineError("it lacks time or request_time")
    request: dict[str, Any] = {"model": str(fields.get("model") or model), "prompt_tokens": _prompt_tokens(fields)}
    if fields.get("session"):
        request["session_id"] = str(fields["session"])[:256]
    observed: dict[str, Any] = {
        "request": request,
        "engine": engine,
        "started_at": ended_at - total_s,
        "total_s": total_s,
        "outcome": _outcome(fields),
    }
    for name, wanted in (("ttft", "ttft_s"), ("cached_tokens", "cached_tokens"), ("output_tokens", "output_tokens")):
        value = _number(fields, name)
        if value is not None:
            observed[wanted] = value if wanted == "ttft_s" else int(value)
    return observed


def _prompt_tokens(fields: Mapping[str, Any]) -> int:
    """Return the prompt's tokens from the log, else an estimate from the request's bytes."""
    logged = _number(fields, "prompt_tokens")
    if logged is not None:
        return max(1, int(logged))
    length = _number(fields, "request_length") or 0.0
    return max(1, int((length - OVERHEAD_BYTES) / _BYTES_PER_TOKEN))


def _outcome(fields: Mapping[str, Any]) -> str:
    status = int(_number(fields, "status") or 0)
    # nginx's own code: the client closed the connection.
    if status == 499:
        return "cancelled"
    if 400 <= status < 500:
        return "client_error"
    return "completed" if 200 <= status < 300 else "failed"


def _number(fields: Mapping[str, Any], name: str) -> float | None:
    """Return a field's numeric value, None if it is missing or "-". The field can be a number or text."""
    try:
        value = float(fields.get(name, ""))
    except (TypeError, ValueError):
        return None
    # NaN and infinity, which float() accepts, fail here as well.
    return value if 0 <= value < 1e12 else None
