"""Reads the series that a router needs from an engine's Prometheus text, and validates them.

The names are vLLM's, old and current, and SGLang's. The text is from another machine: its size is bounded, only known
names are scanned, and the whole text is rejected if one value is implausible.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Annotated

import msgspec
from msgspec import Meta

MAX_BYTES = 2 << 20
MAX_SAMPLES = 512
"""Maximum samples of known names in one text. More indicate a label bomb (one engine has one sample per data-parallel
rank).
"""
MAX_COUNT = 10_000_000
"""Maximum plausible number of requests on one engine."""
MAX_TOTAL = 1e18
MAX_RANKS = 512

_RUNNING = b"vllm:num_requests_running"
_WAITING = b"vllm:num_requests_waiting"
_VLLM = {
    _RUNNING: "running",
    _WAITING: "waiting",
    b"vllm:kv_cache_usage_perc": "kv_usage",
    b"vllm:gpu_cache_usage_perc": "kv_usage",
    b"vllm:prefix_cache_queries_total": "queries",
    b"vllm:gpu_prefix_cache_queries_total": "queries",
    b"vllm:prefix_cache_hits_total": "hits",
    b"vllm:gpu_prefix_cache_hits_total": "hits",
    b"vllm:prompt_tokens_total": "prompt",
    b"vllm:generation_tokens_total": "generated",
    b"process_start_time_seconds": "start",
}
_SGLANG_RUNNING = b"sglang:num_running_reqs"
_SGLANG = {
    _SGLANG_RUNNING: "running",
    b"sglang:num_queue_reqs": "waiting",
    b"sglang:token_usage": "kv_usage",
    b"sglang:cached_tokens_total": "hits",
    b"sglang:prompt_tokens_total": "prompt",
    b"sglang:generation_tokens_total": "generated",
    b"sglang:max_total_num_tokens": "kv_tokens",
    b"process_start_time_seconds": "start",
}
# A share may be above 1 by its rounding.
_LIMIT_OF = {"running": MAX_COUNT, "waiting": MAX_COUNT, "kv_usage": 1.001}
# Possessive quantifiers: a hostile text cannot make the search backtrack.
_LABELS = re.compile(rb'\{(?:[^"}\n]|"(?:[^"\\\n]|\\.)*+")*+\}')
_CACHE_CONFIG = b"vllm:cache_config_info"
_BLOCK_SIZE = re.compile(rb'\bblock_size="(\d{1,6})"')
_BLOCKS = re.compile(rb'\bnum_gpu_blocks="(\d{1,9})"')
_SLEEP_STATE = b"vllm:engine_sleep_state"
_AWAKE = re.compile(rb'\bsleep_state="awake"[^\n]*\} ([01])')
_LORA = b"vllm:lora_requests_info"
_LORA_LABEL = re.compile(rb'\b(max_lora|(?:running|waiting)_lora_adapters)="((?:[^"\\\n]|\\.)*)"')
MAX_ADAPTERS = 1024
_ENGINE = re.compile(rb'[{,]engine="(\d{1,6})"')
_MAX_LINE = 8192
"""Longer lines of a known name are cut, because no value is that far to the right."""
_LIGHT = ("running", "waiting", "kv_usage")


class LightLoad(msgspec.Struct, frozen=True, gc=False):
    """Number of requests in the engine. If `waiting` is None, `running` includes the waiting ones."""

    running: int
    waiting: int | None
    kv_usage: float | None = None
    """0..1."""


class RankLoad(msgspec.Struct):
    """What SGLang reports of one data-parallel rank."""

    num_running_reqs: Annotated[int, Meta(ge=0, le=MAX_COUNT)]
    num_waiting_reqs: Annotated[int, Meta(ge=0, le=MAX_COUNT)]
    token_usage: Annotated[float, Meta(ge=0.0, le=1.001)] | None = None


class RankLoads(msgspec.Struct):
    """SGLang's answer to /v1/loads."""

    loads: Annotated[list[RankLoad], Meta(min_length=1, max_length=MAX_RANKS)]


def total_load(ranks: Sequence[RankLoad]) -> LightLoad:
    """Return the total load of all data-parallel ranks; kv_usage is their mean."""
    usage = [rank.token_usage for rank in ranks if rank.token_usage is not None]
    return LightLoad(
        sum(rank.num_running_reqs for rank in ranks),
        sum(rank.num_waiting_reqs for rank in ranks),
        min(1.0, sum(usage) / len(usage)) if usage else None,
    )


class UnreadableMetricsError(ValueError):
    """The text contains no usable engine metrics; the message states why."""


class EngineMetrics(msgspec.Struct, frozen=True, kw_only=True):
    """One reading, with None for metrics that the engine does not export. Ranks are summed; kv_usage is their mean."""

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
    """KV memory capacity of one rank in tokens."""
    prompt_tokens_total: float | None = None
    """Prompt tokens that entered prefill since the process started."""
    generated_tokens_total: float | None = None
    ranks: int = 1
    """Data-parallel ranks at this address."""
    asleep: bool | None = None
    """Whether the engine is in sleep mode, in which it responds but serves no requests."""
    adapters: tuple[str, ...] | None = None
    """LoRA adapters of running and waiting requests; None: the engine serves none."""
    max_adapters: int | None = None


def parse_engine_metrics(text: bytes, rank: int | None = None) -> EngineMetrics:
    """Return the metrics of one data-parallel rank, or of all ranks together.

    Raise UnreadableMetricsError for unreadable text, label bombs and impossible values.
    """
    values = _collect(text, rank=rank)
    # Ranks are set up alike, and some may not state how.
    config = next(_lines(text, _CACHE_CONFIG, rank), b"") or next(_lines(text, _CACHE_CONFIG), b"")
    block_size, blocks = _BLOCK_SIZE.search(config), _BLOCKS.search(config)
    awake = [match[1] for line in _lines(text, _SLEEP_STATE, rank) if (match := _AWAKE.search(line))]
    adapters, max_adapters = _adapters(text, rank)
    return EngineMetrics(
        running=_requests(values, "running"),
        waiting=_requests(values, "waiting"),
        kv_usage=_usage(values),
        # SGLang queries every prompt token and does not count them again.
        prefix_queries_total=_total(values, "queries" if "queries" in values or "hits" not in values else "prompt"),
        prefix_hits_total=_total(values, "hits"),
        process_start=min(values["start"]) if "start" in values else None,
        block_size=int(block_size[1]) if block_size and int(block_size[1]) > 0 else None,
        kv_tokens=_kv_tokens(values, block_size, blocks),
        prompt_tokens_total=_total(values, "prompt"),
        generated_tokens_total=_total(values, "generated"),
        ranks=len(values["running"]),
        asleep=b"0" in awake if awake else None,
        adapters=adapters,
        max_adapters=max_adapters,
    )


def scan_load(text: bytes, rank: int | None = None) -> tuple[int, int, float | None]:
    """Return (running, waiting, kv_usage) by scanning for these names only; raise UnreadableMetricsError."""
    values = _collect(text, _LIGHT, rank)
    return _requests(values, "running"), _requests(values, "waiting"), _usage(values)


def _collect(text: bytes, fields: tuple[str, ...] = (), rank: int | None = None) -> dict[str, list[float]]:
    """Return the values of these fields, or of all fields, under the metric names of the engine's product."""
    if len(text) > MAX_BYTES:
        raise UnreadableMetricsError(f"more than {MAX_BYTES} bytes")
    values: dict[str, list[float]] = {}
    count = 0
    names = _SGLANG if _SGLANG_RUNNING in text else _VLLM
    for name, field in names.items():
        if fields and field not in fields:
            continue
        for rest in _lines(text, name, rank):
            count += 1
            if count > MAX_SAMPLES:
                raise UnreadableMetricsError(f"more than {MAX_SAMPLES} samples of known names")
            values.setdefault(field, []).append(_value(name, rest, _LIMIT_OF.get(field, MAX_TOTAL)))
    if not values:
        raise UnreadableMetricsError("it contains none of the expected names")
    return values


def _lines(text: bytes, name: bytes, rank: int | None = None) -> Iterator[bytes]:
    """Yield the text after the name in each line that begins with the name, without lines of other ranks.

    A plain search per name is much faster than one combined pattern.
    """
    start = 0 if text.startswith(name) else text.find(b"\n" + name) + 1
    while start > 0 or (start == 0 and text.startswith(name)):
        begin = start + len(name)
        end = text.find(b"\n", begin, begin + _MAX_LINE)
        line = text[begin : end if end >= 0 else begin + _MAX_LINE]
        # Any other character: the name is only the beginning of a longer one.
        if line[:1] in (b"{", b" ", b"\t") and (rank is None or _of_rank(line, rank)):
            yield line
        position = text.find(b"\n" + name, begin)
        start = position + 1 if position >= 0 else -1


def _of_rank(line: bytes, rank: int) -> bool:
    """Return whether a line is about this rank, or about the whole process."""
    engine = _ENGINE.search(line)
    return engine is None or int(engine[1]) == rank


def _value(name: bytes, rest: bytes, limit: float) -> float:
    """Return the number after the labels. A timestamp or an exemplar can follow it."""
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
        raise UnreadableMetricsError(f"the number of {field} requests is missing")
    return int(sum(values[field]))


def _kv_tokens(
    values: dict[str, list[float]], size: re.Match[bytes] | None, blocks: re.Match[bytes] | None
) -> int | None:
    if "kv_tokens" in values:
        return int(min(values["kv_tokens"])) or None
    return (int(size[1]) * int(blocks[1]) or None) if size and blocks else None


def _usage(values: dict[str, list[float]]) -> float | None:
    usage = values.get("kv_usage")
    return min(1.0, sum(usage) / len(usage)) if usage else None


def _total(values: dict[str, list[float]], field: str) -> float | None:
    return sum(values[field]) if field in values else None


def _adapters(text: bytes, rank: int | None) -> tuple[tuple[str, ...] | None, int | None]:
    """Return (adapters in use, their limit) from the label set with the latest time as its value."""
    lines = []
    for line in islice(_lines(text, _LORA, rank), MAX_SAMPLES):
        labels = _LABELS.match(line)
        if labels:
            lines.append((_value(_LORA, line, MAX_TOTAL), dict(_LORA_LABEL.findall(labels[0]))))
    if not lines:
        return None, None
    latest = max(lines, key=lambda item: item[0])[1]
    listed = b",".join(latest.get(name, b"") for name in (b"waiting_lora_adapters", b"running_lora_adapters"))
    names = dict.fromkeys(name.strip().decode(errors="replace") for name in listed.split(b",") if name.strip())
    limit = latest.get(b"max_lora", b"")
    return tuple(names)[:MAX_ADAPTERS], int(limit) if limit.isdigit() and len(limit) < 7 and int(limit) else None
