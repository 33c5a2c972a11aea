"""Planner inputs for one pool, from live jobs or from the simulator in virtual time.

All times are seconds of one clock shared by all facts and memories of a pool: Unix seconds in jobs (a memory outlives
its process), virtual seconds in simulations. Values come from engines and can be wrong in any way: planners treat None,
NaN, and negative numbers as unknown.
"""

from __future__ import annotations

import math
from typing import Literal

import msgspec

Role = Literal["mixed", "prefill", "decode"]

Lifecycle = Literal["active", "starting", "draining", "out"]
"""Target state set by operators and plans. active: serve. starting: ordered, not yet ready. draining: finish work
and stop. out: in maintenance, or stopped.
"""

ACTIVE: Lifecycle = "active"
STARTING: Lifecycle = "starting"
DRAINING: Lifecycle = "draining"
OUT: Lifecycle = "out"


class EngineObservation(msgspec.Struct, frozen=True, kw_only=True):
    """One engine at one time. Counters belong to its current incarnation."""

    engine_id: str
    incarnation: int = 1
    role: Role = "mixed"
    lifecycle: Lifecycle = ACTIVE
    since_s: float | None = None
    """When it entered its lifecycle state."""
    load_share: float = 1.0
    """Share of its usual load that engine health allows. 0 if quarantined."""

    # by its probes
    report_s: float | None = None
    """Time of the last load reading, None if never."""
    reachable: bool = True
    """False if the last probe got no answer."""
    unreachable_since_s: float | None = None
    readable: bool = True
    """False if it answers but its metrics cannot be read."""
    paused: str = ""
    """paused, sleeping, or draining if the engine reports it, else empty."""
    running: int | None = None
    waiting: int | None = None
    kv_usage: float | None = None
    """KV memory usage, 0..1."""
    prompt_tokens_total: float | None = None
    """Prompt tokens of completed prefills in its metrics."""
    generated_tokens_total: float | None = None

    # by the gateway's own account
    dispatched: int = 0
    """Requests dispatched to it that are not complete."""
    prefilling: int = 0
    """Dispatched requests without a first token that will have a visible one, so answers sent as a whole are
    excluded.
    """
    streaming: int = 0
    """Dispatched requests with streamed answers, whose silence is a sign."""
    first_tokens_total: int = 0
    """First tokens received from it."""
    chunks_total: int = 0
    """Later pieces and ends of answers received from it."""
    longest_prefill_s: float = 0.0
    """Estimated seconds of its longest prefill in flight."""
    failures_in_row: int = 0
    """Requests that failed on it since its last success."""
    rejected_share: float | None = None
    """Share of its latest responses with status 4xx, 0..1."""
    rejected_samples: int = 0
    slowness: float | None = None
    """Median over the window of actual seconds from dispatch to first token over their estimate. 1 is as estimated.
    Requests in flight for longer than their estimate count with their time so far.
    """
    slowness_samples: int = 0
    tpot_s: float | None = None
    """Median over the window of the mean seconds between a request's tokens."""
    tpot_samples: int = 0
    event_gaps_total: int = 0
    """Number of gaps in its KV events."""
    in_flight_s: float = 0.0
    """Seconds of prefill work bound to it or in flight on it."""
    bound: int = 0
    """Requests that wait at the gateway for this engine."""


class PoolWindow(msgspec.Struct, frozen=True, kw_only=True):
    """Totals of a pool over one period: a roll-up."""

    from_s: float
    span_s: float
    requests: int
    """Requests that were answered or rejected."""
    on_time: int
    """Requests whose first token met their objective."""
    rejected: int = 0
    work_s: float = 0.0
    """Engine seconds of work for the requests that arrived in the period: uncached prefill, and decode if that uses
    the engine's time.
    """
    queued: int = 0
    """Requests waiting at the end of the period, bound or unbound."""
    queued_s: float = 0.0
    """Engine seconds of work waiting at the end of the period, at the gateway or on engines."""
    prompt_tokens: int = 0
    recomputed_tokens: int = 0
    """Prompt tokens computed on one engine although another one held them."""
    load_cv: float = 0.0
    """CV of pending tokens over the serving engines at the end of the period (routing.values.load_cv)."""
    engines: int = 0
    """Engines serving at the end of the period."""


class PoolFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One pool at one time, and its last minutes."""

    pool_id: str
    now_s: float
    ttft_slo_s: float = 5.0
    tpot_slo_s: float = 0.1
    engines: tuple[EngineObservation, ...] = ()
    unserved: int = 0
    """Requests that wait while no engine accepts work."""
    failed_starts: int = 0
    """Consecutive engine starts that failed."""
    start_failed_s: float | None = None
    """When the last start failed."""
    start_failure: str = ""
    """Reported cause of the last failed start."""
    windows: tuple[PoolWindow, ...] = ()
    """Oldest first, without overlap, covering at least the period that the automations judge."""


class DemandPoint(msgspec.Struct, frozen=True):
    """Demand of a pool around one time in the past, from historical roll-ups."""

    at_s: float
    engines: float
    """Engine seconds of work per second: the number of fully busy engines."""


class RoleLoad(msgspec.Struct, frozen=True):
    """Load of one engine at one time, for the ratio of roles."""

    at_s: float
    role: Role
    load: float
    """1 means as busy as allowed. Prefill: the share of time in prefill (a sample can be 0 or 1), plus the wait for
    a first token over the TTFT objective; the wait alone would react too late. Decode: time between tokens over the
    TBT objective, or the share of memory used or waited for, whichever is higher.
    """


class PrefixFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One hot prefix, as counted by the gateway's router."""

    key: str
    """Affinity key as 16 hex digits."""
    work_s_by_engine: dict[str, float]
    """Engine id → prefill seconds of the prefix's requests on it within the window."""
    candidates: tuple[str, ...] = ()
    """Engines that its requests can use, empty for any."""
    recomputed_tokens: int = 0
    """Tokens of the prefix computed within the window on engines that did not hold them."""


def known(value: float | None) -> float | None:
    """Return the number if it is finite and not negative, else None."""
    if value is None or not math.isfinite(value) or value < 0:
        return None
    return float(value)
