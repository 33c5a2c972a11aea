"""Planner inputs for one pool, from either observer: the jobs live, the simulator in virtual time.

All moments are seconds of one clock that every fact and every memory of a pool shares: Unix seconds in jobs (a memory
outlives its process), virtual seconds in simulations. Values come from engines and may be wrong in any way: a planner
treats None, NaN and negative numbers as not known.
"""

from __future__ import annotations

import math
from typing import Literal

import msgspec

Role = Literal["mixed", "prefill", "decode"]

Lifecycle = Literal["active", "starting", "draining", "out"]
"""State that operators and plans want an engine in. active: to serve. starting: ordered, not yet ready. draining: to
finish its work and stop. out: maintenance, or stopped.
"""

ACTIVE: Lifecycle = "active"
STARTING: Lifecycle = "starting"
DRAINING: Lifecycle = "draining"
OUT: Lifecycle = "out"


class EngineObservation(msgspec.Struct, frozen=True, kw_only=True):
    """One engine as it is known at one moment. Counters are of its present incarnation."""

    engine_id: str
    incarnation: int = 1
    role: Role = "mixed"
    lifecycle: Lifecycle = ACTIVE
    since_s: float | None = None
    """Since when it has been in its lifecycle state."""
    load_share: float = 1.0
    """Share of its usual load that engine health allows; 0: quarantined."""

    # by its probes
    report_s: float | None = None
    """Moment of the last reading of its load; None: never."""
    reachable: bool = True
    """False: the last probe got no answer at all."""
    unreachable_since_s: float | None = None
    readable: bool = True
    """False: it answers, but its metrics cannot be read."""
    paused: str = ""
    """paused, sleeping or draining where the engine itself reports it; else empty."""
    running: int | None = None
    waiting: int | None = None
    kv_usage: float | None = None
    """0..1."""
    prompt_tokens_total: float | None = None
    """Prompt tokens whose prefill it has ended, by its metrics."""
    generated_tokens_total: float | None = None

    # by the gateway's own account
    dispatched: int = 0
    """Requests that were given to it and are not complete."""
    prefilling: int = 0
    """Those of them without a first token, where one will be seen: not those whose answers come in whole."""
    streaming: int = 0
    """Those of them whose answers come piece by piece, so that silence means something."""
    first_tokens_total: int = 0
    """First tokens that came from it."""
    chunks_total: int = 0
    """Later pieces of answers, and ends of answers, that came from it."""
    longest_prefill_s: float = 0.0
    """Estimated seconds of the longest prefill in flight there."""
    failures_in_row: int = 0
    """Requests that failed there since the last one that did not."""
    rejected_share: float | None = None
    """Share of its last answers that were 4xx, 0..1."""
    rejected_samples: int = 0
    slowness: float | None = None
    """Median over the window: seconds from dispatch to first token over the estimate of the same; 1: as estimated.
    Requests in flight for longer than their estimate count with the time so far.
    """
    slowness_samples: int = 0
    tpot_s: float | None = None
    """Median over the window of the mean seconds between a request's tokens."""
    tpot_samples: int = 0
    event_gaps_total: int = 0
    """Times its KV events had a gap."""
    in_flight_s: float = 0.0
    """Seconds of prefill work that is bound to it or in flight there."""
    bound: int = 0
    """Requests that wait at the gateway for this engine."""


class PoolWindow(msgspec.Struct, frozen=True, kw_only=True):
    """Totals of a pool over one span of time: a roll-up."""

    from_s: float
    span_s: float
    requests: int
    """Requests that were answered or rejected."""
    on_time: int
    """Those of them with a first token within their objective."""
    rejected: int = 0
    work_s: float = 0.0
    """Engine seconds of work for the requests that arrived in the span: uncached prefill, and decode where that takes
    the engine's time.
    """
    queued: int = 0
    """Requests that waited at the end of the span, bound or not."""
    queued_s: float = 0.0
    """Engine seconds of work that waited at the end of the span, at the gateway or on engines."""
    prompt_tokens: int = 0
    recomputed_tokens: int = 0
    """Prompt tokens computed on one engine although another held them."""
    load_cv: float = 0.0
    """CV of pending tokens over the serving engines at the end of the span (routing.values.load_cv)."""
    engines: int = 0
    """Engines that served at the end of the span."""


class PoolFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One pool at one moment, and its last minutes."""

    pool_id: str
    now_s: float
    ttft_slo_s: float = 5.0
    tpot_slo_s: float = 0.1
    engines: tuple[EngineObservation, ...] = ()
    failed_starts: int = 0
    """Starts of engines in a row that were given up."""
    start_failed_s: float | None = None
    """When the last of them failed."""
    start_failure: str = ""
    """Its reported cause."""
    windows: tuple[PoolWindow, ...] = ()
    """Oldest first, without overlap; they reach back as far as the automations judge."""


class DemandPoint(msgspec.Struct, frozen=True):
    """Demand of a pool around one moment of the past, from the roll-ups of history."""

    at_s: float
    engines: float
    """Engine seconds of work per second: the number of engines that would be busy all the time."""


class RoleLoad(msgspec.Struct, frozen=True):
    """The load of one engine at one moment, for the ratio of roles."""

    at_s: float
    role: Role
    load: float
    """1: the engine is as busy as it may be. Prefill: the share of its time that it prefills (a sample may be 0 or 1),
    plus the wait for a first token over the TTFT objective; the wait alone shows nothing until it is too late.
    Decode: time between tokens over the TBT objective, or share of its memory that is taken or waited for, whichever
    is more.
    """


class PrefixFacts(msgspec.Struct, frozen=True, kw_only=True):
    """One hot prefix, as the gateway's router counts it."""

    key: str
    """Its affinity key as 16 hex digits."""
    work_s_by_engine: dict[str, float]
    """Engine id → seconds of prefill of its requests there within the window."""
    candidates: tuple[str, ...] = ()
    """Engines that its requests may use now; empty: any."""
    recomputed_tokens: int = 0
    """Its tokens computed within the window on engines that did not hold them."""


def known(value: float | None) -> float | None:
    """Return the number if it is possible: finite and not negative; else None."""
    if value is None or not math.isfinite(value) or value < 0:
        return None
    return float(value)
