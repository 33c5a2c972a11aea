"""The prober's last reading of one engine, as published on the bus."""

from __future__ import annotations

import msgspec

from gateway.contracts.wire import MIB, WireForm

TOPIC_PREFIX = "load/"
"""Last-value topics, one per engine: `load/<engine_id>`."""


class EngineReport(msgspec.Struct, frozen=True, kw_only=True):
    """One reading of one engine. Load fields are None if the engine did not report them."""

    engine_id: str
    at: float
    """Unix seconds."""
    reachable: bool
    """False: no HTTP answer came."""
    healthy: bool
    """False: `reason` says why."""
    reason: str
    """A sentence such as "connection refused" or "metrics are unreadable: …", or of a healthy engine why /health is
    late; else empty.
    """
    readable: bool = True
    """False: it answers, but its metrics cannot be read; such an engine still serves."""
    running: int | None = None
    """Requests in the engine; waiting ones included where `waiting` is None."""
    waiting: int | None = None
    kv_usage: float | None = None
    """0..1, blocks of running requests only."""
    kv_tokens: int | None = None
    """Tokens that fit into the KV memory."""
    prefix_queries_total: float | None = None
    """Prompt tokens queried in the prefix cache since the process started."""
    prefix_hits_total: float | None = None
    process_start: float | None = None
    """Unix seconds."""
    block_size: int | None = None
    """Tokens per KV block."""
    full: bool = False
    """True: all fields are of this reading; False: only reachability, running and waiting are."""
    prompt_tokens_total: float | None = None
    """Prompt tokens taken into prefill since the process started."""
    generated_tokens_total: float | None = None
    asleep: bool | None = None
    """Whether it was put to sleep, so that it answers and serves nothing."""
    adapters: tuple[str, ...] | None = None
    """LoRA adapters that its requests use at this moment; None: not reported."""
    max_adapters: int | None = None
    """Adapters that it can keep loaded at once."""
    shard: int = 0
    """Of the probe job, whose lease the prober held."""
    fence: int = 0
    """Fencing token of that lease: a report with a lower one than the shard's highest is void."""

    @property
    def room_tokens(self) -> int | None:
        """Tokens for which the engine has KV memory left; None where it did not report it."""
        if self.kv_usage is None or self.kv_tokens is None:
            return None
        return int((1.0 - self.kv_usage) * self.kv_tokens)

    @property
    def serves(self) -> bool:
        """Whether requests may be sent there, by this reading."""
        return self.reachable and (self.healthy or not self.readable)


_report = WireForm(EngineReport, "an engine report", limit=MIB)
encode_report, decode_report = _report.encode, _report.decode


def load_topic(engine_id: str) -> str:
    """Return the topic that carries this engine's reports."""
    return TOPIC_PREFIX + engine_id
