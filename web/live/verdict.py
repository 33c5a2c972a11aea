"""The sentence above the Fleet page: are requests late, failed or rejected, and is it getting better?

It is the same for all viewers, so its times are in ISO 8601; each page shows them in its person's zone.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

import msgspec

from controlplane.history.annotation import Annotation
from controlplane.incidents.notices import STAYS, IncidentNotice, mark_of, trend_words
from controlplane.platform.format import (
    NARROW_SPACE,
    count,
    duration,
    iso,
    percent,
    rate,
    setting,
    some_names,
    span,
)
from controlplane.platform.live_fleet.deciding_alone import REMEDY, deciding_alone, named
from gateway.contracts.fleet_sample import TAKING_WORK, EngineSample, FleetSample, Lateness, PoolSample
from planning.incidents.signs import ON_TIME_TARGET
from web.live.engine_card import rejection_word
from web.live.recent_state import NO_RECENT_STATE, RecentState

STAYS_S = 5.0
"""Seconds for which a finding stays while it is true, so that it can be read, unless an engine is lost."""
DEFAULT_TARGETS: Mapping[str, float] = {"": ON_TIME_TARGET}
"""Share of requests on time below which a pool is in trouble, by pool; "" has that of all other pools."""
QUIET = "No problems."
RECOVERED_FOR_S = 60.0
"""Seconds after an engine's return for which the sentence still mentions it."""
NAMED_ENGINES = 3
NOTABLE_WAIT_S = 1.0
"""Seconds of work; an engine with less is never mentioned, however idle the others are."""
NOTABLE_RATIO = 2.0
STILL_NOTABLE = 0.7
"""The engine named as the busiest stays named until it falls below this share of both limits."""
_MISSED = {"late": "are late", "failed": "fail", "rejected": "are rejected"}
"""The three ways to miss an objective: counts of a PoolSample, and the words of the sentence."""


class FleetVerdict(msgspec.Struct, frozen=True, gc=False):
    """Severity (ok, info, warn, bad or quiet), the finding in two words, the sentence, and its subject."""

    severity: str
    lead: str
    text: str
    engine_id: str = ""
    shape: str = ""
    """Engine state whose shape precedes the sentence; if empty, the severity's own shape is used."""
    late_pool_id: str = ""
    """The pool whose requests are late; empty if the sentence is not about late requests."""
    late_since: float = 0.0
    """Unix second since which requests are late."""
    mark: str = ""
    """Figure for the title of the browser's tab while an incident is open."""
    incident: int = 0
    """Number of the incident that the sentence is about; 0: none."""


def findings(
    sample: FleetSample | None,
    markers: Sequence[Annotation] = (),
    recent: RecentState = NO_RECENT_STATE,
    said: FleetVerdict | None = None,
    incidents: Sequence[IncidentNotice] = (),
    targets: Mapping[str, float] = DEFAULT_TARGETS,
) -> list[FleetVerdict]:
    """Return the true statements about the sample, the most urgent first; at least one.

    `markers` are those of the last minutes, `recent` is the state of the last seconds, `said` is the current sentence,
    `incidents` are the open ones, followed by those that closed in the last minutes. `targets` are as DEFAULT_TARGETS.
    """
    if sample is None:
        return [
            FleetVerdict("quiet", "No live data yet.", "The gateway has not published a fleet sample.", shape="unknown")
        ]
    if not sample.engines:
        text = "Connect one, or run make run for a demo fleet of 8."
        return [FleetVerdict("quiet", "No engines yet.", text, shape="unknown")]
    checks = (
        _incident(incidents, sample),
        _lost(sample),
        _late(sample, targets),
        _gateway_late(sample),
        _closed_incident(incidents, sample.at),
        _troubled(sample, recent),
        _starved(sample, recent),
        _decided_alone(sample),
        _leaving(sample),
        _recovered(sample, markers),
    )
    known = [item for item in checks if item is not None] or [_quiet(sample, recent, said)]
    return [_with_observers(_with_lone_gateways(item, sample), sample) for item in known]


def _with_lone_gateways(finding: FleetVerdict, sample: FleetSample) -> FleetVerdict:
    """Return the finding. If requests are late in a pool where gateways decide alone, add that as the likely cause."""
    late = [pool for pool in sample.pools if pool.pool_id == finding.late_pool_id]
    if not late or not deciding_alone(late[0].roles, sample.at):
        return finding
    return msgspec.structs.replace(finding, text=f"{finding.text} Gateways decide alone about {late[0].name}.")


def _with_observers(finding: FleetVerdict, sample: FleetSample) -> FleetVerdict:
    """Return the finding, with the pools in which other routers route as context."""
    names = [pool.name for pool in sample.pools if pool.observes]
    if not names:
        return finding
    if len(names) == 1:
        return msgspec.structs.replace(finding, text=f"{finding.text} {names[0]} is observe-only.")
    which = f"All {len(names)}" if len(names) == len(sample.pools) else f"{len(names)} of {len(sample.pools)}"
    return msgspec.structs.replace(finding, text=f"{finding.text} {which} pools are observe-only.")


def _lost(sample: FleetSample) -> FleetVerdict | None:
    lost = _in_state(sample, "lost")
    if not lost:
        return None
    first = min(lost, key=lambda engine: (engine.since, engine.name))
    since = iso(first.since)
    if len(lost) == 1:
        text = f"Since {since}: {_because(first)}. {_serving(sample)}."
        return FleetVerdict("bad", f"{first.name} is lost.", text, first.engine_id, "lost")
    lead = f"{count(len(lost), 'engine is', 'engines are')} lost."
    text = f"{_names(lost)}; the first, {first.name}, since {since}: {_because(first)}. {_serving(sample)}."
    return FleetVerdict("bad", lead, text, first.engine_id, "lost")


def _incident(incidents: Sequence[IncidentNotice], sample: FleetSample) -> FleetVerdict | None:
    """Return the newest open incident with its own onset and sentence, which outlive samples.

    Its on-time share is that of the sample, so that all figures of the page are of one time.
    """
    newest = next((item for item in incidents if item.closed is None), None)
    if newest is None:
        return None
    others = sum(item.closed is None for item in incidents) - 1
    more = f" {count(others, 'other incident')} open." if others else ""
    newest = msgspec.structs.replace(newest, on_time=_share(sample, newest.pool))
    trend = f" {words}" if (words := trend_words(newest)) else ""
    text = f"Since {iso(newest.onset)}: {newest.text}{trend}{more}"
    verdict = FleetVerdict(
        "bad", f"{newest.title}.", text, shape="lost", late_pool_id=newest.pool, late_since=newest.onset
    )
    return msgspec.structs.replace(verdict, mark=mark_of(newest), incident=newest.number)


def _closed_incident(incidents: Sequence[IncidentNotice], at: float) -> FleetVerdict | None:
    """Return the incident that closed last, while its sentence stays."""
    closed = [item for item in incidents if item.closed is not None and at - item.closed <= STAYS.total_seconds()]
    if not closed:
        return None
    last = max(closed, key=lambda item: item.closed or 0.0)
    text = f"From {iso(last.onset)} to {iso(last.closed or at)}: {last.title}. {last.text}"
    return FleetVerdict("ok", "Recovered.", text, incident=last.number)


def target_in(targets: Mapping[str, float], pool_id: str) -> float:
    """Return the pool's target share on time."""
    return targets.get(pool_id, targets[""])


def _late(sample: FleetSample, targets: Mapping[str, float]) -> FleetVerdict | None:
    worst = min(
        (
            pool
            for pool in sample.pools
            if pool.on_time_share is not None and pool.on_time_share < target_in(targets, pool.pool_id)
        ),
        key=lambda pool: (pool.on_time_share, pool.name),
        default=None,
    )
    if worst is None or worst.on_time_share is None:
        return None
    text = (
        f"{percent(worst.on_time_share)} of {worst.name} within {setting(worst.ttft_slo_s)} over the last "
        f"{sample.window_s:.0f} s; {missed_words(worst)}, {worst.unbound + (worst.bound or 0):,} waiting."
    )
    missed = max(_MISSED, key=lambda name: getattr(worst, name) or 0)
    lead = f"Requests {_MISSED[missed]}."
    if sample.lateness is not None:
        lead = "The gateway and requests are late." if missed == "late" else f"The gateway is late. {lead}"
        text = f"{_stood_still(sample.lateness)}. {text}"
    since = sample.at - sample.window_s
    return FleetVerdict("bad", lead, text, shape="lost", late_pool_id=worst.pool_id, late_since=since)


def _gateway_late(sample: FleetSample) -> FleetVerdict | None:
    if sample.lateness is None:
        return None
    rejects = " It rejects requests that it cannot serve." if sample.lateness.rejects else ""
    text = f"{_stood_still(sample.lateness)}.{rejects} {_on_time(sample)}; its engines are not the cause."
    return FleetVerdict("warn", "The gateway is late.", text, shape="degraded")


def _decided_alone(sample: FleetSample) -> FleetVerdict | None:
    pools = [(pool, alone) for pool in sample.pools if (alone := deciding_alone(pool.roles, sample.at))]
    if not pools:
        return None
    which = some_names([pool.name for pool, _ in pools], NAMED_ENGINES)
    about = f"{which}: {named(pools[0][1])}. Each gateway counts only its own requests."
    text = f"{about} {REMEDY} {_on_time(sample)}."
    return FleetVerdict("warn", "Gateways decide alone.", text, shape="degraded")


def _stood_still(lateness: Lateness) -> str:
    times = "once" if lateness.lapses == 1 else count(lateness.lapses, "time")
    return f"Since {iso(lateness.since)} the gateway stalled {times}, {duration(lateness.away_s)} in total"


def _starved(sample: FleetSample, recent: RecentState) -> FleetVerdict | None:
    idle = [engine for engine in sample.engines if engine.engine_id in recent.nothing_s and engine.state == "serving"]
    if not idle:
        return None
    first = max(idle, key=lambda item: (recent.nothing_s[item.engine_id], item.name))
    others = f" {_names(idle)} are idle." if len(idle) > 1 else ""
    key = recent.lacks.get(first.engine_id, "")
    why = f"It no longer holds prefix {key}, which most other engines hold. " if key else ""
    text = f"{why}Other requests of its pool were queued.{others} {_on_time(sample)}."
    lead = f"{first.name} has been idle for {span(recent.nothing_s[first.engine_id])}."
    return FleetVerdict("warn", lead, text, first.engine_id, "degraded")


def _troubled(sample: FleetSample, recent: RecentState) -> FleetVerdict | None:
    for state in ("hot", "degraded", "quarantined"):
        engines = _in_state(sample, state)
        if not engines:
            continue
        worst = max(engines, key=lambda engine: (_work_s(engine, recent), engine.name))
        load = f"holds {duration(_work_s(worst, recent))} of work"
        if len(engines) == 1:
            why = _because(worst) if worst.reason else f"it {load}"
            text = f"Since {iso(worst.since)}: {why}. {_on_time(sample)}."
            return FleetVerdict("warn", f"{worst.name} is {state}.", text, worst.engine_id, state)
        text = f"{_names(engines)}. The busiest, {worst.name}, {load}; {_on_time(sample, lower=True)}."
        lead = f"{count(len(engines), 'engine is', 'engines are')} {state}."
        return FleetVerdict("warn", lead, text, worst.engine_id, state)
    return None


def _leaving(sample: FleetSample) -> FleetVerdict | None:
    for state, word in (("starting", "starting"), ("draining", "draining"), ("maintenance", "in maintenance")):
        engines = _in_state(sample, state)
        if not engines:
            continue
        first = engines[0]
        rest = f"{_serving(sample)}; {_on_time(sample, lower=True)}."
        if len(engines) > 1:
            lead = f"{count(len(engines), 'engine is', 'engines are')} {word}."
            return FleetVerdict("info", lead, f"{_names(engines)}. {rest}", "", state)
        left = first.running + first.bound
        about = (
            f"{count(left, 'request') if left else 'No request'} left; new requests go to other engines. "
            if state == "draining"
            else ""
        )
        lead = f"{first.name} is {word}."
        return FleetVerdict("info", lead, f"{about}{rest}", first.engine_id, state)
    return None


def _recovered(sample: FleetSample, markers: Sequence[Annotation]) -> FleetVerdict | None:
    for marker in reversed(markers):
        if marker.at < sample.at - RECOVERED_FOR_S:
            return None
        if marker.kind in ("back", "restarted"):
            text = f"Since {iso(marker.at)}: {marker.text}. {_on_time(sample)}."
            return FleetVerdict("ok", "Recovered.", text, marker.engine_id)
    return None


def _work_s(engine: EngineSample, recent: RecentState) -> float:
    return recent.work_s.get(engine.engine_id, engine.in_flight_s)


def handled_per_s(pool: PoolSample) -> float:
    """Return the requests per second that were dispatched or rejected; if unknown, those that ended."""
    if pool.dispatched_at_once_per_s is None or pool.dispatched_waited_per_s is None or pool.observes:
        return pool.requests_per_s
    return pool.dispatched_at_once_per_s + pool.dispatched_waited_per_s + sum((pool.rejections_per_s or {}).values())


def _quiet(sample: FleetSample, recent: RecentState, said: FleetVerdict | None) -> FleetVerdict:
    requests_per_s = sum(handled_per_s(pool) for pool in sample.pools)
    work_s = {engine.engine_id: _work_s(engine, recent) for engine in sample.engines}
    busiest = max(sample.engines, key=lambda engine: (work_s[engine.engine_id], engine.name))
    if requests_per_s == 0 and work_s[busiest.engine_id] == 0:
        text = f"{_serving(sample)}; no request in the last {sample.window_s:.0f} s."
        return FleetVerdict("ok", "Idle.", text)
    spoken_of = said.engine_id if said is not None and said.lead == QUIET else ""
    kept = (item for item in sample.engines if item.engine_id == spoken_of)
    named = next((item for item in kept if _is_outlier(item, sample, work_s, STILL_NOTABLE)), None)
    if named is None and _is_outlier(busiest, sample, work_s):
        named = busiest
    busiest = named or busiest
    most = duration(work_s[busiest.engine_id])
    held = f"no engine holds more than {most} of work" if work_s[busiest.engine_id] else "no engine holds work"
    spread = f"busiest is {busiest.name} with {most} of work" if named else held
    rates = f"{rate(requests_per_s)} requests/s over the last {sample.window_s:.0f} s"
    text = f"{rates}, {_on_time(sample, lower=True)}, {spread}{_rejected(sample.pools)}."
    return FleetVerdict("ok", QUIET, text, named.engine_id if named else "")


def _is_outlier(engine: EngineSample, sample: FleetSample, work_s: Mapping[str, float], share: float = 1.0) -> bool:
    """Return whether the engine holds far more than its pool's median; a named engine has a lower limit."""
    median_s = statistics.median(work_s[item.engine_id] for item in sample.engines if item.pool_id == engine.pool_id)
    return work_s[engine.engine_id] > share * max(NOTABLE_WAIT_S, NOTABLE_RATIO * median_s)


def _rejected(pools: Sequence[PoolSample]) -> str:
    """Return the clause about rejected requests."""
    rejections: dict[str, float] = {}
    for pool in pools:
        for code, per_s in (pool.rejections_per_s or {}).items():
            rejections[code] = rejections.get(code, 0.0) + per_s
    return f", {rejected_words(rejections)}" if rejections else ""


def missed_words(pool: PoolSample) -> str:
    """Return the window's requests that missed the objective: "34 requests late, 31 failed, 12 rejected"."""
    known = [(number, name) for name in _MISSED if (number := getattr(pool, name))] or [(0, "late")]
    words = [
        f"{count(number, 'request') if not index else f'{number:,}'} {name}"
        for index, (number, name) in enumerate(known)
    ]
    rejections = pool.rejections_per_s or {}
    if known[-1][1] == "rejected" and rejections:
        words[-1] += f" ({_mostly(rejections)})"
    return ", ".join(words)


def _in_state(sample: FleetSample, state: str) -> list[EngineSample]:
    return [engine for engine in sample.engines if engine.state == state]


def _names(engines: Sequence[EngineSample]) -> str:
    return some_names([engine.name for engine in engines], NAMED_ENGINES)


def _because(engine: EngineSample) -> str:
    return engine.reason.strip().rstrip(".") or "no reason given"


def _serving(sample: FleetSample) -> str:
    serving = sum(engine.state in TAKING_WORK for engine in sample.engines)
    total = len(sample.engines)
    return (
        f"All {count(total, 'engine')} serve"
        if serving == total > 1
        else f"{serving:,} of {count(total, 'engine serves', 'engines serve')}"
    )


def _on_time(sample: FleetSample, *, lower: bool = False) -> str:
    """Return the on-time share over all pools in words."""
    share = _share(sample)
    if share is None:
        return "no requests" if lower else "No requests"
    return f"{percent(share)} on time"


def _share(sample: FleetSample, pool_id: str = "") -> float | None:
    """Return the on-time share of one pool, or over all, weighted by their requests; None without a request."""
    known = [
        (pool.on_time_share, pool.requests_per_s)
        for pool in sample.pools
        if pool.on_time_share is not None and pool_id in ("", pool.pool_id)
    ]
    weight = sum(requests for _, requests in known)
    return sum(on_time * requests for on_time, requests in known) / weight if weight else None


class SteadyVerdict:
    """Mutable state: the current sentence, and since when it is shown."""

    def __init__(self) -> None:
        self._shown: FleetVerdict | None = None
        self._at = 0.0

    @property
    def shown(self) -> FleetVerdict | None:
        """The current sentence."""
        return self._shown

    def show(self, statements: Sequence[FleetVerdict], at: float) -> FleetVerdict:
        """Return the one of the true `statements`, the most urgent first, to show at Unix second `at`.

        The shown one stays for STAYS_S while it is true, always with its newest figures. A lost engine comes at once.
        """
        first, shown = statements[0], self._shown
        same = next((item for item in statements if shown is not None and _subject(item) == _subject(shown)), None)
        # Below 0 the clock was set back: the sentence would stay until its time is reached again.
        keeps = 0 <= at - self._at < STAYS_S and not (_is_lost(first) and not _is_lost(shown))
        if same is None or not keeps:
            self._at = self._at if same is first else at
            same = first
        self._shown = same
        return same


def _subject(verdict: FleetVerdict) -> tuple[str, str, str]:
    return verdict.lead, verdict.engine_id, verdict.late_pool_id


def _is_lost(verdict: FleetVerdict | None) -> bool:
    return verdict is not None and verdict.shape == "lost" and bool(verdict.engine_id)


def rejected_words(rejections: Mapping[str, float]) -> str:
    """Return the rejection rate and its main reason: "29 /s rejected, mostly queue full"; "" without rejections."""
    if not rejections:
        return ""
    return f"{rate(sum(rejections.values()))}{NARROW_SPACE}/s rejected, {_mostly(rejections)}"


def _mostly(rejections: Mapping[str, float]) -> str:
    often = max(sorted(rejections), key=lambda code: rejections[code])
    return f"{'mostly ' if len(rejections) > 1 else ''}{rejection_word(often)}"
