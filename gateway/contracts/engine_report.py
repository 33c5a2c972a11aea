"""The prober's latest report on one engine, as published on the bus."""

from __future__ import annotations

import msgspec

from gateway.contracts.wire import MIB, WireForm

TOPIC_PREFIX = "load/"
"""Prefix of the last-value topics, one per engine: `load/<engine_id>`."""


class EngineReport(msgspec.Struct, frozen=True, kw_only=True):
    """One report on one engine. Load fields are None if the engine did not report them."""

    engine_id: str
    at: float
    """Unix seconds."""
    reachable: bool
    """False: no HTTP response arrived."""
    healthy: bool
    """False: `reason` states why."""
    reason: str
    """A sentence such as "connection refused" or "metrics are unreadable: …". For a healthy engine, why /health is
    late, else empty.
    """
    readable: bool = True
    """False: the engine responds but its metrics are unreadable. It still serves requests."""
    running: int | None = None
    """Requests in the engine, including waiting ones if `waiting` is None."""
    waiting: int | None = None
    kv_usage: float | None = None
    """KV usage 0..1, counting only blocks of running requests."""
    kv_tokens: int | None = None
    """Capacity of the KV memory in tokens."""
    prefix_queries_total: float | None = None
    """Prompt tokens queried in the prefix cache since the process started."""
    prefix_hits_total: float | None = None
    process_start: float | None = None
    """Unix seconds."""
    block_size: int | None = None
    """Tokens per KV block."""
    full: bool = False
    """True: all fields are from this report; False: only reachability, running and waiting are."""
    prompt_tokens_total: float | None = None
    """Prompt tokens that entered prefill since the process started."""
    generated_tokens_total: float | None = None
    asleep: bool | None = None
    """Whether the engine is in sleep mode, in which it responds but serves no requests."""
    adapters: tuple[str, ...] | None = None
    """LoRA adapters that running requests use now; None: not reported."""
    max_adapters: int | None = None
    """Number of adapters that the engine can keep loaded at once."""
    shard: int = 0
    """Shard of the probe job whose lease the prober held."""
    fence: int = 0
    """Fencing token of that lease. A report with a token below the shard's highest is void."""

    @property
    def room_tokens(self) -> int | None:
        """Return the free KV memory in tokens, None if it is not reported."""
        if self.kv_usage is None or self.kv_tokens is None:
            return None
        return int((1.0 - self.kv_usage) * self.kv_tokens)

    @property
    def serves(self) -> bool:
        """Return whether requests can be sent to the engine according to this report."""
        return self.reachable and (self.healthy or not self.readable)


_report = WireForm(EngineReport, "an engine report", limit=MIB)
encode_report, decode_report = _report.encode, _report.decode


def load_topic(engine_id: str) -> str:
    """Return the topic of this engine's reports."""
    return TOPIC_PREFIX + engine_id
