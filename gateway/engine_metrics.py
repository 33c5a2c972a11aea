"""Reads the few series that a router needs out of an engine's Prometheus text, and distrusts the rest.

The names are vLLM's, old and current. The text comes from another machine: it is bounded, scanned for
known names only, and refused whole when one of them makes no sense.
"""

from __future__ import annotations

import math
import re

import msgspec

MAX_BYTES = 2 << 20
MAX_SAMPLES = 512
"""Samples of known names in one text; more are a label bomb (one engine has one per data-parallel rank)."""
MAX_COUNT = 1e7
"""Requests that one engine can plausibly hold."""
MAX_TOTAL = 1e18

_RUNNING = b"vllm:num_requests_running"
_WAITING = b"vllm:num_requests_waiting"
_FIELD_OF = {
    _RUNNING: "running",
    _WAITING: "waiting",
    b"vllm:kv_cache_usage_perc": "kv_usage",
    b"vllm:gpu_cache_usage_perc": "kv_usage",
    b"vllm:prefix_cache_queries_total": "queries",
    b"vllm:gpu_prefix_cache_queries_total": "queries",
    b"vllm:prefix_cache_hits_total": "hits",
    b"vllm:gpu_prefix_cache_hits_total": "hits",
    b"process_start_time_seconds": "start",
}
_LIMIT_OF = {"running": MAX_COUNT, "waiting": MAX_COUNT, "kv_usage": 1.001, "queries": MAX_TOTAL, "hits": MAX_TOTAL}
_LINE = re.compile(rb"^(%s)(?=[{ \t])([^\n]*)" % b"|".join(re.escape(name) for name in _FIELD_OF), re.MULTILINE)
_LABELS = re.compile(rb'\{(?:[^"}\n]|"(?:[^"\\\n]|\\.)*+")*+\}')
_INFO = re.compile(rb'^vllm:cache_config_info\{[^\n]{0,4096}?\bblock_size="(\d{1,6})"', re.MULTILINE)
_BLOCKS = re.compile(rb'^vllm:cache_config_info\{[^\n]{0,4096}?\bnum_gpu_blocks="(\d{1,9})"', re.MULTILINE)
_USAGE = rb"vllm:(?:kv|gpu)_cache_usage_perc"
_LIGHT = re.compile(rb"^(%s|%s|%s)(?=[{ \t])([^\n]*)" % (_RUNNING, _WAITING, _USAGE), re.MULTILINE)


class UnreadableMetricsError(ValueError):
    """The text is no usable set of engine metrics; the message says which line of thought ended where."""


class EngineMetrics(msgspec.Struct, frozen=True, kw_only=True):
    """One reading; None where the engine does not export it. Ranks are summed, kv_usage is their mean."""

    running: int
    waiting: int
    kv_usage: float | None
    """0..1."""
    prefix_queries_total: float | None
    """Prompt tokens."""
    prefix_hits_total: float | None
    process_start: float | None
    """Unix seconds."""
    block_size: int | None
    """Tokens per KV block."""
    kv_tokens: int | None = None
    """Tokens that fit into the KV memory of one rank."""


def parse_engine_metrics(text: bytes) -> EngineMetrics:
    """Return what the text says; raises UnreadableMetricsError on garbage, bombs and impossible values."""
    values = _collect(text, _LINE)
    block_size, blocks = _INFO.search(text), _BLOCKS.search(text)
    return EngineMetrics(
        running=_requests(values, "running"),
        waiting=_requests(values, "waiting"),
        kv_usage=_usage(values),
        prefix_queries_total=_total(values, "queries"),
        prefix_hits_total=_total(values, "hits"),
        process_start=min(values["start"]) if "start" in values else None,
        block_size=int(block_size[1]) if block_size and int(block_size[1]) > 0 else None,
        kv_tokens=(int(block_size[1]) * int(blocks[1]) or None) if block_size and blocks else None,
    )


def scan_load(text: bytes) -> tuple[int, int, float | None]:
    """Return (running, waiting, kv_usage) by a scan for those names only; raises UnreadableMetricsError."""
    values = _collect(text, _LIGHT)
    return _requests(values, "running"), _requests(values, "waiting"), _usage(values)


def _collect(text: bytes, pattern: re.Pattern[bytes]) -> dict[str, list[float]]:
    if len(text) > MAX_BYTES:
        raise UnreadableMetricsError(f"more than {MAX_BYTES} bytes")
    values: dict[str, list[float]] = {}
    for count, line in enumerate(pattern.finditer(text), start=1):
        if count > MAX_SAMPLES:
            raise UnreadableMetricsError(f"more than {MAX_SAMPLES} samples of known names")
        name = line[1]
        field = _FIELD_OF[name]
        values.setdefault(field, []).append(_value(name, line[2], _LIMIT_OF.get(field, MAX_TOTAL)))
    if not values:
        raise UnreadableMetricsError("none of the expected names is in it")
    return values


def _value(name: bytes, rest: bytes, limit: float) -> float:
    """Return the number after the labels; a timestamp or an exemplar may follow it."""
    labels = _LABELS.match(rest)
    fields = rest[labels.end() if labels else 0 :].split(maxsplit=1)
    shown = name.decode()
    try:
        value = float(fields[0])
    except (ValueError, IndexError):
        raise UnreadableMetricsError(f"{shown} has no number: {rest[:60]!a}") from None
    if not math.isfinite(value) or value < 0 or value > limit:
        raise UnreadableMetricsError(f"{shown} cannot be {value:g}")
    return value


def _requests(values: dict[str, list[float]], field: str) -> int:
    if field not in values:
        raise UnreadableMetricsError(f"vllm:num_requests_{field} is missing")
    return int(sum(values[field]))


def _usage(values: dict[str, list[float]]) -> float | None:
    usage = values.get("kv_usage")
    return min(1.0, sum(usage) / len(usage)) if usage else None


def _total(values: dict[str, list[float]], field: str) -> float | None:
    return sum(values[field]) if field in values else None
