"""Cache locality as published on the bus: rings, shared prefixes, TTFT by part, reported hits.

It changes slowly and only pages read it, so it is separate from the FleetSample.
"""

from __future__ import annotations

import msgspec

from gateway.contracts.wire import MIB, WireForm
from routing.rings.ring_plan import RingPlan

SCHEMA_VERSION = 1
TOPIC = "cache_locality"
"""Last-value bus topic on which each gateway publishes a CacheLocalitySample every few seconds."""


class SharedPrefix(msgspec.Struct, frozen=True):
    """One node of the tree of shared prefixes, with blocks counted from 1. It has no text: keys are keyed digests."""

    key: str
    """Block key of the node's last block, 16 hex digits."""
    parent: int
    """Index of its parent in the list; -1: the node begins the prompt."""
    level: int
    first_block: int
    last_block: int
    requests: int
    holders: tuple[str, ...] = ()
    """Ids of the engines that hold the complete prefix according to the index."""
    key_blocks: int = 0
    """Length of the placement's key for such prompts if it ends within this node, else 0."""
    dram_nodes: tuple[str, ...] = ()
    """Names of the node managers that hold its last block in DRAM."""
    ssd_nodes: tuple[str, ...] = ()
    """Names of the node managers that hold its last block only on SSD."""


class HitPoint(msgspec.Struct, frozen=True):
    """One request's predicted and reported hit, in prompt tokens."""

    prompt_tokens: int
    believed_tokens: int
    reported_tokens: int
    age_s: float
    differs: bool = False


class SplitMean(msgspec.Struct, frozen=True):
    """Mean parts of the TTFT of some requests, in seconds. They sum to the mean TTFT."""

    queue_s: float
    """Wait at the gateway for a dispatch."""
    transfer_s: float
    """From the hand-over to the first token: transfer of KV blocks from the prefill engine to the decode engine."""
    prefill_s: float
    """The remaining time on the engine until the first token, including the engine's own queue."""


class SplitSpan(msgspec.Struct, frozen=True):
    """TTFT parts of one engine over one time span."""

    span_s: float
    requests: int
    mean: SplitMean
    p90: SplitMean
    """Mean parts of requests with a TTFT near the 90th percentile: within an eighth of an octave, about 9 %."""


class EngineCacheLocality(msgspec.Struct, frozen=True, kw_only=True):
    """Cache-locality figures of one engine."""

    engine_id: str
    name: str
    accepts: bool
    requests: int = 0
    """Requests of the sampled window that were dispatched to the engine."""
    split: tuple[SplitSpan, ...] = ()
    """Parts of its TTFT, shortest span first. Spans without a request are omitted."""
    trust: str = ""
    """exact, degraded or blind."""
    trust_reason: str = ""
    """Why the index is trusted less, as a sentence; empty if exact."""
    trust_since: float | None = None
    """Unix seconds since when the grade and its cause hold; None: since the gateway started to judge."""
    cause: str = ""
    """Why hits differ, as in gateway.contracts.hit_sample; empty: they do not differ, or the cause is unknown."""
    share: float | None = None
    """Reported tokens as a share of believed tokens, 0..1; None: too few requests."""
    compared: int = 0
    """Requests compared in the last five minutes, at most 64."""
    differing: int = 0
    believed_tokens: int = 0
    reported_tokens: int = 0
    points: tuple[HitPoint, ...] = ()
    """The newest of the compared requests."""


class PoolCacheLocality(msgspec.Struct, frozen=True, kw_only=True):
    """Cache-locality figures of one pool."""

    pool_id: str
    placement: str
    policy_version: int
    block_tokens: int
    requests: int
    """Number of requests that the sampled window represents."""
    sampled: int
    """Number of prompts in the sampled window."""
    span_s: float
    """Length of the window so far in seconds."""
    engines: tuple[EngineCacheLocality, ...]
    """Ordered by name."""
    accepting: tuple[str, ...]
    """Ids of the engines that accept work, in the order used to build rings."""
    rings: RingPlan | None = None
    """None: the placement uses no rings."""
    keys: dict[str, int] = {}
    """Affinity key (16 hex digits) → requests of the window, for the busiest MAX_KEYS."""
    widened: int = 0
    """Prefixes that are currently spread over more engines than usual."""
    prefixes: tuple[SharedPrefix, ...] = ()


class CacheLocalitySample(msgspec.Struct, frozen=True, kw_only=True):
    """Cache-locality figures of one gateway."""

    schema_version: int = SCHEMA_VERSION
    at: float
    """Unix seconds."""
    pools: tuple[PoolCacheLocality, ...]


def _problem(sample: CacheLocalitySample) -> str:
    version = sample.schema_version
    return "" if version == SCHEMA_VERSION else f"schema {version}, not {SCHEMA_VERSION}"


_sample = WireForm(CacheLocalitySample, "a cache locality sample", limit=16 * MIB, problem=_problem)
encode_cache_locality, decode_cache_locality = _sample.encode, _sample.decode
