"""Finds what is wrong now: objectives that burn, and parts of the fleet that are lost, sick, late, or cut off.

Each condition opens above one limit and continues above a lower one, so that an episode does not flap. Objectives need
a minimum number of requests and a significant excess: at low traffic a few late requests are noise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from itertools import pairwise

import msgspec

from planning.incidents.signs import (
    FAILED,
    NONE,
    REJECTED,
    EngineSigns,
    FleetSigns,
    Interval,
    SignLog,
    missed,
    on_time_share,
    requests,
)

BURN, FAILING, REJECTING = "burn", "failing", "rejecting"
HITS_FELL, EVICTING = "hits_fell", "evictions_rose"
ENGINE_LOST, ENGINE_SICK, INDEX_BLIND = "engine_lost", "engine_sick", "index_blind"
GATEWAY_LATE, NODE_LOST, LINK_DOWN, REGION_CUT, JOB_FAILING, CANARY_ABORTED = (
    "gateway_late",
    "node_lost",
    "link_down",
    "region_cut_off",
    "job_failing",
    "canary_aborted",
)
OF_REQUESTS = (BURN, FAILING, REJECTING)
"""Symptoms that requests have, not parts of the fleet."""
FLEET_WIDE = (GATEWAY_LATE, NODE_LOST, LINK_DOWN, REGION_CUT, JOB_FAILING)

SHORT_S, LONG_S, STEADY_S = 30.0, 120.0, 60.0
"""Windows of an objective's burn: the short and a longer one must burn to open, the steady one to continue."""
NOW_S, LASTS_S = 10.0, 30.0
"""A burn must show in the last seconds, and have lasted for longer than a burst."""
BURN_SHORT = 1.5
"""Multiple of the error budget that the short window must use."""
FEW = 10
"""Minimum missed requests in a longer window."""
CERTAIN = 4.0
"""Standard deviations by which missed requests must exceed the error budget."""
FAILED_SHARE, REJECTED_SHARE = 0.02, 0.05
LOST_FOR_S, QUARANTINED_FOR_S, DEGRADED_FOR_S, BLIND_FOR_S = 3.0, 15.0, 45.0, 60.0
AWAY_SHARE, AWAY_STILL = 0.10, 0.03
CACHE_S, USUAL_WINDOWS = 15.0, 8
"""Length of the windows in which hits and evictions are compared, and how many before are the usual ones."""
FELL_TO, FELL_STILL, FELL_BY = 0.4, 0.75, 0.1
"""Hits fell if they are under FELL_TO of a low usual share, and FELL_BY below it. They are low until they reach
FELL_STILL of a usual one."""
EVICTED_SHARE, EVICTED_TIMES = 1.5, 3.0
"""Evicted tokens over those that requests may have added, and over the highest usual share, from which they rose."""
MANY_PROMPTS = 20
"""Effective number of prompts from which their hits are more than the chance of a few long ones."""
EVENT_S = 60.0
"""Seconds for which a single event counts as a symptom."""
SICK = ("quarantined", "degraded")


class Symptom(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that is wrong."""

    kind: str
    pool_id: str = ""
    """Empty: the whole fleet."""
    subject: str = ""
    """Id of the engine, or name of the node, link, or job."""
    name: str = ""
    since: float
    share: float = 0.0
    """Of requests: the share that missed its objective, failed, or was rejected, 0..1."""

    @property
    def identity(self) -> tuple[str, str, str]:
        """Return what distinguishes it from other symptoms."""
        return self.kind, self.pool_id, self.subject


def find_symptoms(log: SignLog, ongoing: Collection[tuple[str, str, str]] = ()) -> list[Symptom]:
    """Return the symptoms of the newest reading. `ongoing` are the identities of those that an open episode has."""
    newest = log.newest
    if newest is None:
        return []
    matches: list[Symptom] = []
    for pool_id in sorted(newest.pools):
        matches += _of_requests(log, newest, pool_id, ongoing)
    for _, engine in sorted(newest.engines.items()):
        matches += _of_engine(log, newest, engine, ongoing)
    return [*matches, *_of_gateways(log, newest, ongoing), *_of_outages(newest)]


def find_preconditions(log: SignLog) -> list[Symptom]:
    """Return the conditions of symptoms that hold now, although not for long enough or not beyond chance yet."""
    newest = log.newest
    if newest is None:
        return []
    matches: list[Symptom] = []
    for pool_id, pool in sorted(newest.pools.items()):
        short = log.recent(pool_id, SHORT_S)
        ended = short.outcomes() if short is not None else NONE
        limits = (
            (BURN, missed(ended), BURN_SHORT * (1.0 - pool.target)),
            (FAILING, ended[FAILED], FAILED_SHARE),
            (REJECTING, ended[REJECTED], REJECTED_SHARE),
        )
        matches += [
            Symptom(kind=kind, pool_id=pool_id, since=newest.at - SHORT_S, share=number / requests(ended))
            for kind, number, least in limits
            if number >= 2 and number >= least * requests(ended)
        ]
    for _, engine in sorted(newest.engines.items()):
        held = (
            (ENGINE_LOST, engine.state == "lost" and _has_served(log, engine)),
            (ENGINE_SICK, engine.state in SICK and not engine.reason.startswith("probation")),
        )
        matches += [_of(engine, kind, engine.since) for kind, holds in held if holds]
    return matches


def _of(engine: EngineSigns, kind: str, since: float) -> Symptom:
    return Symptom(kind=kind, pool_id=engine.pool_id, subject=engine.engine_id, name=engine.name, since=since)


def _of_requests(
    log: SignLog, newest: FleetSigns, pool_id: str, ongoing: Collection[tuple[str, str, str]]
) -> list[Symptom]:
    minute = log.recent(pool_id, STEADY_S)
    if minute is None:
        return []
    matches: list[Symptom] = []
    now = minute.outcomes()
    budget = 1.0 - newest.pools[pool_id].target
    burns = _burns_still(minute, budget) if (BURN, pool_id, "") in ongoing else _burns(log, pool_id, budget)
    if burns or _stuck(log, pool_id):
        share = 1.0 - (on_time_share(now) or 0.0)
        matches.append(Symptom(kind=BURN, pool_id=pool_id, since=_onset(log, pool_id, budget), share=share))
    for kind, column, least in ((FAILING, FAILED, FAILED_SHARE), (REJECTING, REJECTED, REJECTED_SHARE)):
        number, share = now[column], now[column] / max(1, requests(now))
        still = (kind, pool_id, "") in ongoing
        usual = _usual(log, pool_id, column)
        if share >= (least / 2 if still else max(least, 3 * usual)) and number >= (1 if still else FEW / 2):
            matches.append(Symptom(kind=kind, pool_id=pool_id, since=_first(log, pool_id, column), share=share))
    name = newest.pools[pool_id].name
    for kind, is_bad in ((HITS_FELL, _hits_fell), (EVICTING, _evicting)):
        if is_bad(log, newest.at, pool_id, still=(kind, pool_id, "") in ongoing):
            matches.append(Symptom(kind=kind, pool_id=pool_id, name=name, since=newest.at - 2 * CACHE_S))
    return matches


def _hits_fell(log: SignLog, now: float, pool_id: str, *, still: bool) -> bool:
    """Return whether the cached share of prompt tokens fell far below those of the minutes before.

    The index knows it at the dispatch, an engine whose index is blind at the end of its requests. Two windows in a row
    must be low, and not by a few long prompts.
    """
    windows = _windows(log, now, pool_id, now - log.oldest_at() if still else CACHE_S * (3 + USUAL_WINDOWS))
    for share_of in (Interval.expected_share, Interval.reported_share):
        lately, usual = _compared(windows, share_of)
        if not lately or not usual:
            continue
        ranked = sorted(usual)
        # The upper quartile: the fall itself soon has more windows than what was usual.
        if still and max(lately) < FELL_STILL * ranked[3 * len(usual) // 4]:
            return True
        # The lower quartile: caches that fill have had few hits for a window or two.
        usually = ranked[len(usual) // 4]
        low = max(lately) < min(FELL_TO * usually, usually - FELL_BY)
        if low and _effective_prompts(log, now - 2 * CACHE_S, pool_id) >= MANY_PROMPTS:
            return True
    return False


def _evicting(log: SignLog, now: float, pool_id: str, *, still: bool) -> bool:
    """Return whether engines evict more than requests can push out, and much more than in the minutes before."""
    windows = _windows(log, now, pool_id, CACHE_S * (3 + USUAL_WINDOWS))
    lately, usual = _compared(windows, Interval.evicted_share)
    if not lately or not (still or usual):
        return False
    return min(lately) >= (EVICTED_SHARE if still else max(EVICTED_SHARE, EVICTED_TIMES * max(usual)))


def _windows(log: SignLog, now: float, pool_id: str, span_s: float) -> list[Interval | None]:
    """Return the windows of the last `span_s` seconds, newest first; None for one with too few requests to judge."""
    ends = [now - row * CACHE_S for row in range(int(span_s / CACHE_S))]
    windows = [log.interval(pool_id, end - CACHE_S, end) for end in ends]
    return [item if item is not None and requests(item.outcomes()) >= 2 * FEW else None for item in windows]


def _compared(
    windows: Sequence[Interval | None], share_of: Callable[[Interval], float | None]
) -> tuple[list[float], list[float]]:
    """Return the shares of the last two windows and the usual ones before; each is empty if it is not known."""
    shares = [share_of(item) if item is not None else None for item in windows]
    lately, usual = ([share for share in part if share is not None] for part in (shares[:2], shares[3:]))
    return lately if len(lately) == 2 else [], usual if len(usual) >= USUAL_WINDOWS - 1 else []


def _effective_prompts(log: SignLog, since: float, pool_id: str) -> float:
    """Return how many prompts of equal length would vary as much as those since `since` (Kish 1965, 11.7).

    Prompts of one engine between two readings count as one.
    """
    pairs = [pair for steps in pairwise(log.readings(since)) for pair in Interval(*steps, pool_id).engines()]
    tokens = [max(0, now.dispatched_tokens - old.dispatched_tokens) for old, now in pairs]
    return sum(tokens) ** 2 / max(1, sum(item * item for item in tokens))


def _burns(log: SignLog, pool_id: str, budget: float) -> bool:
    newest, short, now = log.newest, log.recent(pool_id, SHORT_S), log.recent(pool_id, NOW_S)
    if newest is None or short is None or now is None or short.span_s < SHORT_S / 2:
        return False
    if requests(now.outcomes()) < FEW:
        now = log.recent(pool_id, 2 * NOW_S) or now
    lately, last = short.outcomes(), now.outcomes()
    if missed(lately) < max(FEW / 2, BURN_SHORT * budget * requests(lately)):
        return False
    # A burst that is over needs no person.
    lasts = missed(last) >= max(2, BURN_SHORT * budget * requests(last))
    severe = missed(lately) >= max(2 * FEW, 0.5 * requests(lately))
    if not lasts or newest.at - _onset(log, pool_id, budget) < (NOW_S if severe else LASTS_S):
        return False
    # A slight burn shows in the longer window, a strong one earlier in the shorter one.
    return any(_exceeds(log.recent(pool_id, span_s), budget) for span_s in (STEADY_S, LONG_S))


def _exceeds(interval: Interval | None, budget: float) -> bool:
    """Return whether more requests than by chance missed the objective, and not only a few."""
    if interval is None:
        return False
    ended = interval.outcomes()
    expected = requests(ended) * budget
    by_chance = CERTAIN * math.sqrt(max(1.0, expected * (1.0 - budget)))
    return missed(ended) >= max(FEW, expected + by_chance)


def _burns_still(minute: Interval, budget: float) -> bool:
    ended = minute.outcomes()
    return missed(ended) >= 3 and missed(ended) > budget * requests(ended)


def _stuck(log: SignLog, pool_id: str) -> bool:
    """Return whether no request has ended for SHORT_S although many wait, and requests ended before."""
    short, long = log.recent(pool_id, SHORT_S), log.recent(pool_id, LONG_S)
    if short is None or long is None or short.span_s < 0.9 * SHORT_S:
        return False
    waits = min(short.first.pools[pool_id].waiting, short.last.pools[pool_id].waiting)
    return waits >= FEW and requests(short.outcomes()) == 0 and requests(long.outcomes()) >= FEW


def _onset(log: SignLog, pool_id: str, budget: float) -> float:
    """Return when the burn began, by the last zero of a cumulative sum of excess misses (CUSUM, Page 1954)."""
    readings = [item for item in log.readings(-math.inf) if pool_id in item.pools]
    onset, excess = readings[0].at, 0.0
    for before, after in pairwise(readings):
        ended = Interval(before, after, pool_id).outcomes()
        # Limited, so that the sum of an earlier burn is soon gone.
        excess = min(3.0 * FEW, max(0.0, excess + missed(ended) - budget * requests(ended)))
        if excess == 0.0:
            onset = after.at
    return onset


def _first(log: SignLog, pool_id: str, column: int) -> float:
    """Return when requests began to fail or to be rejected, after the last half minute without one."""
    readings = [item for item in log.readings(-math.inf) if pool_id in item.pools]
    first = readings[-1].at
    for after, before in pairwise(reversed(readings)):
        if Interval(before, after, pool_id).outcomes()[column]:
            first = before.at
        elif first - before.at > SHORT_S:
            break
    return first


def _usual(log: SignLog, pool_id: str, column: int) -> float:
    """Return the share of failed or rejected requests before the last two minutes, 0..1."""
    newest = log.newest
    earlier = log.interval(pool_id, log.oldest_at(), newest.at - LONG_S) if newest is not None else None
    ended = earlier.outcomes() if earlier is not None else NONE
    return ended[column] / requests(ended) if requests(ended) >= 10 * FEW else 0.0


def _of_engine(
    log: SignLog, newest: FleetSigns, engine: EngineSigns, ongoing: Collection[tuple[str, str, str]]
) -> list[Symptom]:
    matches = []
    for_s = newest.at - engine.since
    if engine.state == "lost" and for_s >= LOST_FOR_S and _has_served(log, engine):
        matches.append(_of(engine, ENGINE_LOST, engine.since))
    restarted = restarted_at(log, engine, newest.at - EVENT_S)
    if restarted is not None:
        matches.append(_of(engine, ENGINE_LOST, restarted))
    sick = _sick_from(log, engine)
    limit_s = QUARANTINED_FOR_S if engine.state == "quarantined" else DEGRADED_FOR_S
    if sick is not None and newest.at - sick.since >= limit_s:
        matches.append(_of(engine, ENGINE_SICK, sick.since))
    if engine.trust == "blind" and (
        (INDEX_BLIND, engine.pool_id, engine.engine_id) in ongoing or _went_blind(log, engine)
    ):
        matches.append(_of(engine, INDEX_BLIND, newest.at - BLIND_FOR_S))
    return matches


def _sick_from(log: SignLog, engine: EngineSigns) -> EngineSigns | None:
    """Return the engine when it became quarantined or degraded, in whatever order since; None if it is neither."""
    first = None
    for signs in reversed(log.readings(-math.inf)):
        now = signs.engines.get(engine.engine_id)
        # A lost engine that returns is on probation for a while, which is no new trouble.
        if now is None or now.state not in SICK or now.reason.startswith("probation"):
            break
        first = now
    return first


def crawls(log: SignLog, engine: EngineSigns) -> bool:
    """Return whether a sick engine has made progress since it became sick: it is slow, however long it pauses."""
    first = _sick_from(log, engine)
    return first is not None and first.incarnation == engine.incarnation and engine.progress > first.progress


def _has_served(log: SignLog, engine: EngineSigns) -> bool:
    """Return whether the engine was seen in another state: a fleet whose engines never came up is no incident."""
    seen = (item.engines.get(engine.engine_id) for item in log.readings(-math.inf))
    return engine.progress > 0 or any(old is not None and old.state in ("serving", "hot", *SICK) for old in seen)


def restarted_at(log: SignLog, engine: EngineSigns, since: float) -> float | None:
    """Return when the engine last restarted after `since` without being drained; None if it did not."""
    before: EngineSigns | None = None
    at = None
    for signs in log.readings(since):
        now = signs.engines.get(engine.engine_id)
        if now is None:
            continue
        served = before is not None and before.state in ("serving", "hot", "lost", *SICK)
        if before is not None and served and now.restarts > before.restarts:
            at = signs.at
        before = now
    return at


def _went_blind(log: SignLog, engine: EngineSigns) -> bool:
    newest = log.newest
    if newest is None:
        return False
    since = log.reading_at(newest.at - BLIND_FOR_S)
    blind = since.engines.get(engine.engine_id) if since is not None else None
    if blind is None or blind.trust != "blind":
        return False
    earlier = (item.engines.get(engine.engine_id) for item in log.readings(-math.inf))
    return any(old is not None and old.trust == "exact" for old in earlier)


def _of_gateways(log: SignLog, newest: FleetSigns, ongoing: Collection[tuple[str, str, str]]) -> list[Symptom]:
    begin = max(newest.at - STEADY_S, log.oldest_at())
    first = log.reading_at(begin)
    # The first seconds of a fleet, in which everything connects, are no sample of its minutes.
    if first is None or newest.at - first.at < 0.9 * STEADY_S:
        return []
    share = (newest.away_s - first.away_s) / (newest.at - first.at)
    still = (GATEWAY_LATE, "", "") in ongoing
    if share < (AWAY_STILL if still else AWAY_SHARE) and not newest.rejects:
        return []
    return [Symptom(kind=GATEWAY_LATE, since=_first_away(log, newest), share=share)]


def _first_away(log: SignLog, newest: FleetSigns) -> float:
    """Return when gateways began to be late, after the last half minute in which they were on time."""
    readings = log.readings(newest.at - 2 * LONG_S)
    first = newest.at
    for after, before in pairwise(reversed(readings)):
        if after.away_s - before.away_s > AWAY_STILL * (after.at - before.at):
            first = before.at
        elif first - before.at > SHORT_S:
            break
    return first


def _of_outages(newest: FleetSigns) -> list[Symptom]:
    kinds = {"node": NODE_LOST, "link": LINK_DOWN, "region": REGION_CUT, "job": JOB_FAILING}
    return [
        Symptom(kind=kinds[outage.kind], subject=outage.name, name=outage.name, since=outage.since)
        for outage in newest.outages
        if newest.at - outage.since >= LOST_FOR_S
    ]
