"""One sample of the live fleet, as published on the bus for display and storage."""

from __future__ import annotations

import msgspec

from gateway.contracts.region_sample import RegionSample
from gateway.contracts.wire import MIB, WireForm

SCHEMA_VERSION = 1
TOPIC = "fleet"
"""Last-value bus topic on which the gateway publishes a FleetSample twice a second."""

STATES = ("serving", "hot", "degraded", "lost", "draining", "maintenance", "starting", "unknown", "quarantined")
"""Stored by index: append new ones."""
TAKING_WORK = frozenset({"serving", "hot", "degraded"})
"""The states in which an engine gets new requests."""


class EngineCounts(msgspec.Struct, frozen=True, kw_only=True):
    """One engine's counters for this gateway's requests; they restart with each incarnation."""

    dispatched: int
    """Requests that were given to it and are not complete."""
    prefilling: int
    """Those of them without a first token, where one will be visible: not those whose answers come in one piece."""
    streaming: int
    """Those of them whose answers come piece by piece."""
    first_tokens_total: int
    chunks_total: int
    """Later pieces of answers, and ends of answers."""
    longest_prefill_s: float
    """Estimated seconds of its longest prefill in progress."""
    failures_in_row: int
    slowness: float | None
    """Median over the last minute: seconds from dispatch to first token over the estimate of the same."""
    slowness_samples: int
    tpot_s: float | None
    """Median over the last minute of the mean seconds between a request's tokens."""
    tpot_samples: int
    event_gaps_total: int
    rejected_share: float | None = None
    """Share of its last answers, those of the last minute at most, that were 4xx."""
    rejected_samples: int = 0


class PrefixCounts(msgspec.Struct, frozen=True, kw_only=True):
    """One much used prefix, over the last half minute at most."""

    key: str
    """Its affinity key as 16 hex digits: a keyed digest, no text."""
    work_s_by_engine: dict[str, float]
    """Engine id → seconds of prefill that its requests brought there."""
    candidates: tuple[str, ...] = ()
    tokens: int = 0
    """Its length in prompt tokens, as far as engines held it."""
    recomputed_tokens: int = 0


class PoolTotals(msgspec.Struct, frozen=True, kw_only=True):
    """Totals of a pool since the gateway started; the difference of two samples gives the interval between them."""

    requests: int
    """Answered, failed or rejected; those that their clients cancelled are left out."""
    on_time: int
    rejected: int
    work_s: float
    """Engine seconds of uncached prefill that dispatched requests asked for."""
    prompt_tokens: int
    recomputed_tokens: int
    """Prompt tokens computed on one engine although another was believed to hold them."""


class TierSample(msgspec.Struct, frozen=True):
    """One tier below an engine's memory."""

    tier: str
    """cpu, disk or external."""
    blocks: int
    token_s: float | None
    """Learned seconds of loading one token from there; None: no prefill has shown it yet."""


class EngineSample(msgspec.Struct, frozen=True, kw_only=True):
    """One engine at one moment. Tokens are uncached prompt tokens bound to or running on the engine."""

    engine_id: str
    name: str
    pool_id: str
    incarnation: int
    state: str
    """One of STATES."""
    reason: str
    """Why it is in that state, as a sentence for people; empty when serving."""
    since: float
    """Unix seconds."""
    in_flight_tokens: int
    in_flight_s: float
    running: int
    """Dispatched requests that are not complete."""
    bound: int
    """Requests that wait at the gateway for this engine."""
    oldest_bound_s: float | None = None
    """Seconds that the oldest of them has waited; 0 where none waits, None: not reported."""
    kv_usage: float | None
    """0..1 as the engine reports it; None: unknown."""
    prompt_tokens_total: int
    cached_tokens_total: int
    """As the engine reports it per request, summed since the gateway started."""
    predicted_tokens_total: int = 0
    """Cached tokens that the decisions on the same requests expected."""
    index_trust: str
    """exact, degraded or blind."""
    report_age_s: float | None
    """Age of the last load report; None: none received."""
    role: str = "mixed"
    """mixed, prefill or decode."""
    counts: EngineCounts | None = None
    """None: the gateway does not report them."""
    answered: bool = True
    """Whether it ever answered since the gateway started."""
    index_trust_reason: str = ""
    """Why the index is trusted less, as a sentence; empty when exact."""
    block_tokens: int | None = None
    """Tokens per KV block as the engine reports it; None: not reported."""
    tiers: tuple[TierSample, ...] = ()
    """The tiers in its events, fastest first."""
    adapter_s: float | None = None
    """Learned seconds of loading a LoRA adapter; None: no prefill has shown it yet."""


class PoolRole(msgspec.Struct, frozen=True, kw_only=True):
    """One gateway's role for a shared pool."""

    gateway: str
    """Its name."""
    role: str
    """owner (decides for all), asks (the owner), alone (decides for itself), or only (it reaches no other)."""
    owner: str
    """Name of the gateway that owns the pool as this one knows it; empty: no owner."""
    epoch: int
    since: float
    """Unix seconds."""
    reason: str = ""
    """Why it decides alone; of the only gateway: empty if there is no other."""

    @property
    def decides_alone(self) -> bool:
        """Whether it decides for itself although there are other gateways."""
        return self.role == "alone" or (self.role == "only" and bool(self.reason))


class PoolSample(msgspec.Struct, frozen=True, kw_only=True):
    """One pool at one moment; shares and percentiles over the last `window_s` seconds (None: no request)."""

    pool_id: str
    name: str
    region: str
    served_model: str
    placement: str
    order: str
    policy_version: int
    ttft_slo_s: float
    tokens_per_s: float
    """Uncached prompt tokens that one engine of the pool prefills per second."""
    unbound: int
    """Requests that wait at the gateway for no particular engine, deferred ones among them."""
    unbound_tokens: int
    oldest_wait_s: float
    load_cv: float
    """Coefficient of variation of pending prefill tokens over serving engines, each engine's smoothed over about
    4 s (0 when idle): routing.values.load_cv."""
    requests_per_s: float
    prompt_tokens_per_s: float
    ttft_p50_s: float | None
    ttft_p90_s: float | None
    ttft_p99_s: float | None
    on_time_share: float | None
    """Share of requests with TTFT under the SLO, 0..1; rejected and failed ones count as late."""
    hit_share: float | None
    """Cached share of prompt tokens as engines report it, 0..1."""
    late: int
    """Late requests within the window."""
    judged: int = 0
    """Requests within the window that were on time or late."""
    ttft_count: int = 0
    """Requests within the window that had a first token."""
    ttft_points: tuple[float, ...] = ()
    """Their TTFTs in order, seconds; of many only some, evenly spread by rank, so that percentiles over several
    gateways can be computed.
    """
    observes: bool = False
    """Other routers decide where its requests go, and report them; nothing is routed here."""
    admission: str = ""
    """How admission judges load, as the policy names it; empty: not reported."""
    bound: int | None = None
    """Requests that wait for one engine, all engines together; here and below None: not reported."""
    dispatched_at_once_per_s: float | None = None
    dispatched_waited_per_s: float | None = None
    """Dispatches of queued requests."""
    queue_wait_mean_s: float | None = None
    queue_wait_p90_s: float | None = None
    """Time at the gateway of the requests dispatched within the window, 0 for those at once; None without a dispatch.
    """
    migrations_per_s: float | None = None
    overtaken_per_s: float | None = None
    """Dispatches of queued requests that a later request on the same engine preceded."""
    rejections_per_s: dict[str, float] | None = None
    """By code; codes without a rejection within the window are left out."""
    totals: PoolTotals | None = None
    """None: not reported."""
    prefixes: tuple[PrefixCounts, ...] = ()
    """The busiest ones, where the placement keeps prefixes to a few engines."""
    approximate_share: float | None = None
    """Share of requests whose block keys are exact up to an image or audio only, and guesses after it, 0..1."""
    usual_d: int = 0
    """Engines that each prefix is kept to; 0: the placement may choose any."""
    queued_s: float | None = None
    """Engine seconds of waiting prefill, at the gateway or on engines."""
    roles: tuple[PoolRole, ...] = ()
    """Of each gateway that knows of others. The owner's sample counts the work of those that ask it."""


class Lateness(msgspec.Struct, frozen=True, kw_only=True):
    """The gateway itself is late: its event loop was blocked, so its statements about engines are old."""

    since: float
    """Unix seconds."""
    lapses: int
    """Times that it stalled since then."""
    away_s: float
    """Seconds of them in all."""
    rejects: bool
    """It rejects requests for that reason at this moment."""


class FleetSample(msgspec.Struct, frozen=True, kw_only=True):
    """The complete fleet at one moment, as one gateway sees it."""

    schema_version: int = SCHEMA_VERSION
    seq: int
    at: float
    """Unix seconds."""
    window_s: float
    snapshot_version: int
    engines: tuple[EngineSample, ...]
    """In a stable order: by pool name, then engine name."""
    pools: tuple[PoolSample, ...]
    lateness: Lateness | None = None
    """None: the gateway is not late."""
    regions: tuple[RegionSample, ...] = ()
    """One of each gateway that knows other regions."""


def _problem(sample: FleetSample) -> str:
    version = sample.schema_version
    return "" if version == SCHEMA_VERSION else f"schema {version}, not {SCHEMA_VERSION}"


_sample = WireForm(FleetSample, "a fleet sample", limit=64 * MIB, problem=_problem)
encode_sample, decode_sample = _sample.encode, _sample.decode
