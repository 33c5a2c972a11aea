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
    """Mean parts of some requests' times to first token, in seconds; they sum to the mean TTFT."""

    queue_s: float
    """Waiting at the gateway for a dispatch."""
    transfer_s: float
    """From the hand-over to the first token: KV blocks on their way from the prefill engine to the decode engine."""
    prefill_s: float
    """The rest: on the engine until the first token, its own queue included."""


class SplitSpan(msgspec.Struct, frozen=True):
    """One engine over one span of time."""

    span_s: float
    requests: int
    mean: SplitMean
    p90: SplitMean
    """Of the requests whose TTFT is around the 90th percentile: within an eighth of an octave, about 9 %."""


class EngineCacheLocality(msgspec.Struct, frozen=True, kw_only=True):
    """One engine's part."""

    engine_id: str
    name: str
    accepts: bool
    requests: int = 0
    """Requests of the sampled window that were dispatched to it."""
    split: tuple[SplitSpan, ...] = ()
    """Parts of its TTFT, the shortest span first; spans without a request are left out."""
    trust: str = ""
    """exact, degraded or blind."""
    trust_reason: str = ""
    """Why it is trusted less, as a sentence; empty when exact."""
    trust_since: float | None = None
    """Unix seconds since when the grade and its cause hold; None: since the gateway began to judge."""
    cause: str = ""
    """Why its hits differ, of gateway.contracts.hit_sample; empty: they do not, or no cause was determined."""
    share: float | None = None
    """Reported share of the believed tokens, 0..1; None: too few requests."""
    compared: int = 0
    """Requests that were compared, of the last five minutes and at most 64."""
    differing: int = 0
    believed_tokens: int = 0
    reported_tokens: int = 0
    points: tuple[HitPoint, ...] = ()
    """The newest of them."""


class PoolCacheLocality(msgspec.Struct, frozen=True, kw_only=True):
    """One pool's part."""

    pool_id: str
    placement: str
    policy_version: int
    block_tokens: int
    requests: int
    """Requests that the sampled window represents."""
    sampled: int
    """Prompts in it."""
    span_s: float
    """Length of the window so far."""
    engines: tuple[EngineCacheLocality, ...]
    """By name."""
    accepting: tuple[str, ...]
    """Ids of the engines that take work, in the order in which rings are made of them."""
    rings: RingPlan | None = None
    """None: the placement uses none."""
    keys: dict[str, int] = {}
    """Affinity key (16 hex digits) to requests of the window, the busiest MAX_KEYS."""
    widened: int = 0
    """Prefixes that are kept to more engines than usual for now."""
    prefixes: tuple[SharedPrefix, ...] = ()


class CacheLocalitySample(msgspec.Struct, frozen=True, kw_only=True):
    """One gateway's sample."""

    schema_version: int = SCHEMA_VERSION
    at: float
    """Unix seconds."""
    pools: tuple[PoolCacheLocality, ...]


def _problem(sample: CacheLocalitySample) -> str:
    version = sample.schema_version
    return "" if version == SCHEMA_VERSION else f"schema {version}, not {SCHEMA_VERSION}"


_sample = WireForm(CacheLocalitySample, "a cache locality sample", limit=16 * MIB, problem=_problem)
encode_cache_locality, decode_cache_locality = _sample.encode, _sample.decode
