"""The one sentence above everything else: is anyone hurt, and is it getting better?"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

import msgspec

from controlplane.fleet_past.marker import Marker
from gateway.fleet_sample import EngineSample, FleetSample, PoolSample
from web.live.refusal_words import refused_words
from web.live.wording import clock_time, count, duration, percent, rate, setting

ON_TIME_TARGET = 0.90
"""Goodput is counted at this share of requests within the TTFT SLO; below it the fleet is in trouble."""
RECOVERED_FOR_S = 60.0
"""So long after an engine's return the sentence still speaks of it."""
NAMED_ENGINES = 3
NOTABLE_WAIT_S = 1.0
"""An engine with less work than this is not worth a word, however idle the others are."""
NOTABLE_RATIO = 2.0


class Verdict(msgspec.Struct, frozen=True, gc=False):
    """Severity (ok, info, warn, bad or quiet), the finding in two words, the sentence, and whom it is about."""

    severity: str
    lead: str
    text: str
    engine_id: str = ""
    shape: str = ""
    """Engine state whose shape stands before the sentence; empty: the severity's own."""


def judge(sample: FleetSample | None, markers: Sequence[Marker] = ()) -> Verdict:
    """Return the most pressing true statement about the sample; `markers` are those of the last minutes."""
    if sample is None:
        return Verdict("quiet", "No live data yet.", "The gateway has not published a fleet sample.", shape="unknown")
    if not sample.engines:
        return Verdict(
            "quiet", "No engines yet.", "Register one, or run make run for a demo fleet of 8.", shape="unknown"
        )
    for finding in (_lost(sample), _late(sample), _troubled(sample), _leaving(sample), _recovered(sample, markers)):
        if finding is not None:
            return _with_observers(finding, sample)
    return _with_observers(_quiet(sample), sample)


def _with_observers(finding: Verdict, sample: FleetSample) -> Verdict:
    """Return the finding with what must be known to read it: in which pools others route."""
    names = [pool.name for pool in sample.pools if pool.observes]
    if not names:
        return finding
    if len(names) == 1:
        return msgspec.structs.replace(finding, text=f"{finding.text} {names[0]} only observes: others route there.")
    which = f"All {len(names)}" if len(names) == len(sample.pools) else f"{len(names)} of {len(sample.pools)}"
    return msgspec.structs.replace(finding, text=f"{finding.text} {which} pools only observe: others route there.")


def _lost(sample: FleetSample) -> Verdict | None:
    lost = _in_state(sample, "lost")
    if not lost:
        return None
    first = min(lost, key=lambda engine: (engine.since, engine.name))
    since = clock_time(first.since)
    if len(lost) == 1:
        text = f"Since {since}: {_because(first)}. {_serving(sample)}."
        return Verdict("bad", f"{first.name} is lost.", text, first.engine_id, "lost")
    lead = f"{len(lost)} engines are lost."
    text = f"{_names(lost)}; the first, {first.name}, since {since}: {_because(first)}. {_serving(sample)}."
    return Verdict("bad", lead, text, first.engine_id, "lost")


def _late(sample: FleetSample) -> Verdict | None:
    worst = min(
        (pool for pool in sample.pools if pool.on_time_share is not None),
        key=lambda pool: (pool.on_time_share, pool.name),
        default=None,
    )
    if worst is None or worst.on_time_share is None or worst.on_time_share >= ON_TIME_TARGET:
        return None
    text = (
        f"{percent(worst.on_time_share)} of {worst.name} within {setting(worst.ttft_slo_s)} over the last "
        f"{sample.window_s:.0f} s; {count(worst.late, 'request')} late, "
        f"{worst.unbound + (worst.bound or 0):,} waiting{_refused([worst])}."
    )
    return Verdict("bad", "Requests are late.", text, shape="lost")


def _troubled(sample: FleetSample) -> Verdict | None:
    for state in ("hot", "degraded"):
        engines = _in_state(sample, state)
        if not engines:
            continue
        worst = max(engines, key=lambda engine: (engine.outstanding_s, engine.name))
        load = f"holds {duration(worst.outstanding_s)} of work"
        if len(engines) == 1:
            why = _because(worst) if worst.reason else f"it {load}"
            text = f"Since {clock_time(worst.since)}: {why}. {_on_time(sample)}."
            return Verdict("warn", f"{worst.name} is {state}.", text, worst.engine_id, state)
        text = f"{_names(engines)}. The busiest, {worst.name}, {load}; {_on_time(sample, lower=True)}."
        return Verdict("warn", f"{len(engines)} engines are {state}.", text, worst.engine_id, state)
    return None


def _leaving(sample: FleetSample) -> Verdict | None:
    for state, word in (("starting", "starting"), ("draining", "draining"), ("maintenance", "in maintenance")):
        engines = _in_state(sample, state)
        if not engines:
            continue
        first = engines[0]
        rest = f"{_serving(sample)}; {_on_time(sample, lower=True)}."
        if len(engines) > 1:
            return Verdict("info", f"{len(engines)} engines are {word}.", f"{_names(engines)}. {rest}", "", state)
        left = first.running + first.bound
        about = f"{count(left, 'request')} left, new ones go elsewhere. " if state == "draining" and left else ""
        lead = f"{first.name} is drained." if state == "draining" and not left else f"{first.name} is {word}."
        return Verdict("info", lead, f"{about}{rest}", first.engine_id, state)
    return None


def _recovered(sample: FleetSample, markers: Sequence[Marker]) -> Verdict | None:
    for marker in reversed(markers):
        if marker.at < sample.at - RECOVERED_FOR_S:
            return None
        if marker.kind == "back":
            text = f"Since {clock_time(marker.at)}: {marker.text}. {_on_time(sample)}."
            return Verdict("ok", "Recovered.", text, marker.engine_id)
    return None


def _quiet(sample: FleetSample) -> Verdict:
    requests_per_s = sum(pool.requests_per_s for pool in sample.pools)
    busiest = max(sample.engines, key=lambda engine: (engine.outstanding_s, engine.name))
    if requests_per_s == 0 and busiest.outstanding_tokens == 0:
        text = f"{_serving(sample)}; no request in the last {sample.window_s:.0f} s."
        return Verdict("ok", "Idle.", text)
    peers = [engine.outstanding_s for engine in sample.engines if engine.pool_id == busiest.pool_id]
    median = statistics.median(peers)
    if busiest.outstanding_s > max(NOTABLE_WAIT_S, NOTABLE_RATIO * median):
        spread = f"busiest is {busiest.name} with {duration(busiest.outstanding_s)} of work"
    elif busiest.outstanding_s > 0:
        spread = f"no engine holds more than {duration(busiest.outstanding_s)} of work"
    else:
        spread = "no engine holds work"
    text = f"{rate(requests_per_s)} requests/s, {_on_time(sample, lower=True)}, {spread}{_refused(sample.pools)}."
    return Verdict("ok", "All quiet.", text)


def _refused(pools: Sequence[PoolSample]) -> str:
    """Return what a sentence adds where requests are refused."""
    refusals: dict[str, float] = {}
    for pool in pools:
        for code, per_s in (pool.refusals_per_s or {}).items():
            refusals[code] = refusals.get(code, 0.0) + per_s
    return f", {refused_words(refusals)}" if refusals else ""


def _in_state(sample: FleetSample, state: str) -> list[EngineSample]:
    return [engine for engine in sample.engines if engine.state == state]


def _names(engines: Sequence[EngineSample]) -> str:
    named = ", ".join(engine.name for engine in engines[:NAMED_ENGINES])
    rest = len(engines) - NAMED_ENGINES
    return f"{named} and {rest} more" if rest > 0 else named


def _because(engine: EngineSample) -> str:
    return engine.reason.strip().rstrip(".") or "no reason given"


def _serving(sample: FleetSample) -> str:
    serving = sum(engine.state in ("serving", "hot", "degraded") for engine in sample.engines)
    total = len(sample.engines)
    return f"All {total:,} engines serve" if serving == total else f"{serving:,} of {total:,} engines serve"


def _on_time(sample: FleetSample, *, lower: bool = False) -> str:
    """Return the share of requests on time over all pools, weighted by their requests."""
    known = [(pool.on_time_share, pool.requests_per_s) for pool in sample.pools if pool.on_time_share is not None]
    weight = sum(requests for _, requests in known)
    if not known or weight == 0:
        return "no request to judge" if lower else "No request to judge"
    share = sum(on_time * requests for on_time, requests in known) / weight
    return f"{percent(share)} on time"
