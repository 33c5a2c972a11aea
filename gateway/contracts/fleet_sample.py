"""One sample of the live fleet and its regions, as published on the bus for display and storage."""

from __future__ import annotations

import msgspec

from gateway.contracts.outcomes import PoolOutcomes
from gateway.contracts.wire import MIB, WireForm


class RegionLink(msgspec.Struct, frozen=True, kw_only=True):
    """A gateway of another region, as seen by this one. Times in seconds."""

    region: str
    address: str
    up: bool
    """Whether requests can be sent there."""
    dead: bool = False
    """It refuses connections: no process listens."""
    heartbeat_age_s: float | None = None
    one_way_s: float = 0.0
    clock_offset_s: float = 0.0


class HandOvers(msgspec.Struct, frozen=True, kw_only=True):
    """Requests of the last hour that one gateway forwarded to a region for the same reason."""

    region: str
    reason: str
    """Code in routing.values.reasons."""
    requests: int = 0
    late: int = 0
    failed: int = 0
    """Failed tries."""
    first_tokens: int = 0
    ttft_s: float = 0.0
    """Sum over the first tokens, each measured here, with both ways."""


class RegionSample(msgspec.Struct, frozen=True, kw_only=True):
    """Region figures of one gateway. Rates are requests per second over the sample's window."""

    region: str
    tag: str
    local_per_s: float
    """Requests that arrived here first and were served by engines of this region."""
    forwarded_per_s: dict[str, float]
    """Region → requests sent there."""
    links: tuple[RegionLink, ...]
    epochs: dict[str, tuple[int, str]]
    """Region → (epoch, region whose gateway serves it)."""
    serves: tuple[str, ...]
    """Regions to whose engines this gateway dispatches."""
    hand_overs: tuple[HandOvers, ...] = ()


SCHEMA_VERSION = 1
TOPIC = "fleet"
"""Last-value bus topic on which each gateway publishes a FleetSample twice a second."""

STATES = ("serving", "hot", "degraded", "lost", "draining", "maintenance", "starting", "unknown", "quarantined")
"""States are stored by index, so append new ones at the end."""
TAKING_WORK = frozenset({"serving", "hot", "degraded"})
"""The states in which an engine receives new requests."""


class EngineCounts(msgspec.Struct, frozen=True, kw_only=True):
    """One engine's counters of this gateway's requests. They restart with each incarnation."""

    dispatched: int
    """Requests dispatched to the engine that are not complete."""
    prefilling: int
    """Of the `dispatched`, requests without a first token. Responses in one piece are not counted."""
    streaming: int
    """Of the `dispatched`, requests whose responses are streamed."""
    first_tokens_total: int
    chunks_total: int
    """Chunks after the first token, plus ends of responses."""
    longest_prefill_s: float
    """Estimated seconds of the longest prefill in progress."""
    failures_in_row: int
    slowness: float | None
    """Actual over estimated seconds from dispatch to first token, median over the last minute."""
    slowness_samples: int
    tpot_s: float | None
    """Mean seconds between a request's tokens, median over the last minute."""
    tpot_samples: int
    event_gaps_total: int
    rejected_share: float | None = None
    """Share of 4xx among its last responses, within the last minute."""
    rejected_samples: int = 0


class EngineFaults(msgspec.Struct, frozen=True, kw_only=True):
    """One engine's faults since the gateway started. They do not restart with an incarnation."""

    tokenizer_late: int = 0
    """Calls to its tokenizer that failed, or that took longer than a prompt waits for one."""
    tokenizer_late_s: float = 0.0
    """Seconds of these calls in total."""
    broken: int = 0
    """Answers that had begun and that the engine did not complete."""
    unanswered: int = 0
    """Requests that the engine took and did not begin to answer: they failed, or moved to another engine."""
    failed_at: float | None = None
    """Unix seconds of the last request in the two counts above; None: there was none."""
    restarts: int = 0
    """New processes of the engine that this gateway noticed."""
    evictions: int | None = None
    """KV blocks removed from its memory according to its events. Restarts with the gateway's record of them; None: the
    engine sends no events.
    """


class PrefixCounts(msgspec.Struct, frozen=True, kw_only=True):
    """One frequently used prefix, over at most the last half minute."""

    key: str
    """Affinity key as 16 hex digits: a keyed digest, not text."""
    work_s_by_engine: dict[str, float]
    """Engine id → seconds of prefill that the prefix's requests caused there."""
    candidates: tuple[str, ...] = ()
    tokens: int = 0
    """Length of the prefix in prompt tokens that engines held."""
    recomputed_tokens: int = 0


class PoolTotals(msgspec.Struct, frozen=True, kw_only=True):
    """Totals of a pool since the gateway started. The difference of two samples covers the interval between them."""

    requests: int
    """Completed, failed or rejected requests, without those that clients cancelled."""
    on_time: int
    rejected: int
    work_s: float
    """Engine seconds of uncached prefill of dispatched requests."""
    prompt_tokens: int
    recomputed_tokens: int
    """Prompt tokens computed on one engine although another engine was believed to hold them."""


class TierSample(msgspec.Struct, frozen=True):
    """One KV tier below an engine's memory."""

    tier: str
    """cpu, disk or external."""
    blocks: int
    token_s: float | None
    """Learned seconds to load one token from this tier; None: not measured yet."""


class EngineSample(msgspec.Struct, frozen=True, kw_only=True):
    """One engine at one time. Tokens are uncached prompt tokens bound to or running on the engine."""

    engine_id: str
    name: str
    pool_id: str
    incarnation: int
    state: str
    """One of STATES."""
    reason: str
    """Why the engine is in that state, as a sentence for operators; empty when serving."""
    since: float
    """Unix seconds."""
    in_flight_tokens: int
    in_flight_s: float
    running: int
    """Dispatched requests that are not complete."""
    bound: int
    """Requests queued at the gateway for this engine."""
    oldest_bound_s: float | None = None
    """Wait of the oldest bound request in seconds; 0 if none waits, None if not reported."""
    kv_usage: float | None
    """0..1 as the engine reports it; None: unknown."""
    prompt_tokens_total: int
    cached_tokens_total: int
    """Cached tokens that the engine reported per request, summed since the gateway started."""
    predicted_tokens_total: int = 0
    """Cached tokens that the decisions on the same requests predicted."""
    dispatched_tokens_total: int = 0
    dispatched_hits_total: int = 0
    """Prompt tokens of the requests dispatched to it, and those of them that it was believed to hold."""
    index_trust: str
    """exact, degraded or blind."""
    report_age_s: float | None
    """Age of the last load report that the engine answered, in seconds; None: none received."""
    role: str = "mixed"
    """mixed, prefill or decode."""
    counts: EngineCounts | None = None
    """None: the gateway does not report them."""
    answered: bool = True
    """Whether the engine has responded since the gateway started."""
    index_trust_reason: str = ""
    """Why the index is trusted less, as a sentence; empty if exact."""
    block_tokens: int | None = None
    """Tokens per KV block as reported by the engine; None: not reported."""
    tiers: tuple[TierSample, ...] = ()
    """The tiers named in its events, fastest first."""
    adapter_s: float | None = None
    """Learned seconds to load a LoRA adapter; None: not measured yet."""
    faults: EngineFaults | None = None
    """None: the gateway does not report them."""


class PoolRole(msgspec.Struct, frozen=True, kw_only=True):
    """One gateway's role for a shared pool."""

    gateway: str
    """The gateway's name."""
    role: str
    """owner (decides for all), asks (sends requests to the owner), alone (decides for itself), or only (reaches no
    other gateway).
    """
    owner: str
    """Name of the pool's owner known to this gateway; empty: no owner."""
    epoch: int
    since: float
    """Unix seconds."""
    reason: str = ""
    """Why it decides alone. For role `only`, empty if there is no other gateway."""

    @property
    def decides_alone(self) -> bool:
        """Return whether it decides for itself although there are other gateways."""
        return self.role == "alone" or (self.role == "only" and bool(self.reason))


class PoolSample(msgspec.Struct, frozen=True, kw_only=True):
    """One pool at one time. Shares and percentiles cover the last `window_s` seconds (None: no request)."""

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
    """Requests queued at the gateway for no particular engine, including deferred ones."""
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
    """Share of requests with a TTFT under the SLO, 0..1, among late, failed and rejected ones."""
    hit_share: float | None
    """Cached share of prompt tokens as reported by engines, 0..1."""
    late: int
    """Completed requests within the window whose first token was late."""
    judged: int = 0
    """Requests within the window that were on time, late, failed or rejected."""
    ttft_count: int = 0
    """Requests within the window that had a first token."""
    ttft_points: tuple[float, ...] = ()
    """Sorted TTFTs of these requests in seconds. If there are many, a sample spread evenly by rank, so that
    percentiles over several gateways can be computed.
    """
    observes: bool = False
    """Other routers route its requests and report them; Headway routes none."""
    admission: str = ""
    """Name of the policy's load criterion for admission; empty: not reported."""
    bound: int | None = None
    """Requests bound to an engine, over all engines. None here and below: not reported."""
    dispatched_at_once_per_s: float | None = None
    dispatched_waited_per_s: float | None = None
    """Dispatches of queued requests per second."""
    queue_wait_mean_s: float | None = None
    queue_wait_p90_s: float | None = None
    """Queue wait of the requests dispatched within the window, 0 for immediate dispatches; None without a dispatch."""
    migrations_per_s: float | None = None
    overtaken_per_s: float | None = None
    """Dispatches per second of queued requests after a later request on the same engine."""
    rejections_per_s: dict[str, float] | None = None
    """Rejections by code. Codes without a rejection within the window are omitted."""
    totals: PoolTotals | None = None
    """None: not reported."""
    prefixes: tuple[PrefixCounts, ...] = ()
    """The busiest prefixes, if the placement keeps prefixes on a few engines."""
    approximate_share: float | None = None
    """Share of requests with exact block keys only up to an image or audio and guessed keys after it, 0..1."""
    usual_d: int = 0
    """Number of engines that hold each prefix; 0: the placement can choose any engine."""
    queued_s: float | None = None
    """Engine seconds of waiting prefill, at the gateway and on engines."""
    roles: tuple[PoolRole, ...] = ()
    """The role of each gateway that knows others. The owner's sample includes requests that others send it."""
    failed: int | None = None
    """Failed requests within the window; None here and below: not reported."""
    rejected: int | None = None
    """Rejected requests within the window."""
    outcomes: PoolOutcomes | None = None
    """Ended requests since the gateway started."""


class Lateness(msgspec.Struct, frozen=True, kw_only=True):
    """The gateway itself is late: its event loop was blocked, so its information about engines is old."""

    since: float
    """Unix seconds."""
    lapses: int
    """Number of lapses since then."""
    away_s: float
    """Total seconds of these lapses."""
    rejects: bool
    """Whether the gateway rejects requests now for this reason."""


class FleetSample(msgspec.Struct, frozen=True, kw_only=True):
    """The complete fleet at one time, as one gateway sees it."""

    schema_version: int = SCHEMA_VERSION
    seq: int
    at: float
    """Unix seconds."""
    window_s: float
    snapshot_version: int
    engines: tuple[EngineSample, ...]
    """Ordered by pool name, then engine name."""
    pools: tuple[PoolSample, ...]
    lateness: Lateness | None = None
    """None: the gateway is not late."""
    regions: tuple[RegionSample, ...] = ()
    """One sample per gateway that knows other regions."""


def _problem(sample: FleetSample) -> str:
    version = sample.schema_version
    return "" if version == SCHEMA_VERSION else f"schema {version}, not {SCHEMA_VERSION}"


_sample = WireForm(FleetSample, "a fleet sample", limit=64 * MIB, problem=_problem)
encode_sample, decode_sample = _sample.encode, _sample.decode
