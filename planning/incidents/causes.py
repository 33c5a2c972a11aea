"""Ranks the likely causes of an incident, each with its evidence and a confidence.

Each rule compares the time since the onset with the minutes before it, and checks what only its cause does. Effects
of one cause resemble other causes: a flood makes gateways late, a starved host makes engines slow, and a lost engine
takes its cache with it. Such rules yield to the evidence of the other cause.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Sequence

import msgspec

from planning.incidents.scene import CHANGE_S, Scene, scene_of
from planning.incidents.signs import (
    ALL,
    FAILED,
    LATE,
    NONE,
    REJECTED,
    Change,
    EngineSigns,
    Interval,
    Outage,
    Outcomes,
    SignLog,
    requests,
)
from planning.incidents.symptoms import CACHE_S, EVICTED_SHARE, EVICTED_TIMES, SICK, crawls, restarted_at

GATEWAY, FLOOD, DEMAND = "gateway_starved", "tenant_flood", "more_requests"
CRASHED, FROZEN, LOST, SLOW, FAILS = "engine_crashed", "engine_frozen", "engine_lost", "engine_slow", "engine_fails"
TOKENIZER, BLIND = "tokenizer_late", "index_blind"
HOT_PREFIX, EVICTIONS, TEMPLATE = "hot_prefix", "eviction_wave", "template_changed"
POLICY, SCALED_DOWN = "policy_changed", "engines_removed"
NODE, LINK, REGION, JOB, CANARY = "node_lost", "link_down", "region_cut_off", "job_failing", "canary_aborted"
_OF_OUTAGES = {"node": NODE, "link": LINK, "region": REGION, "job": JOB}

CERTAIN, MARGIN, LISTED = 0.6, 0.15, 0.3
"""The first cause is certain from CERTAIN on if it leads by MARGIN. Causes below LISTED are not listed."""
KNOWN_S = 90.0
"""Usual seconds before the onset that make a tenant's growth certain."""
STILL_S, LONG_STILL_S = 10.0, 30.0
"""Seconds without progress after which an engine may be frozen: with other evidence, and with requests alone."""
_CRAWLS = ("times their estimate", "ms apart")
_SILENT = ("timed out", "produced nothing", "no answer", "no progress", "no probe answered")
GROWN, LONGER = 1.25, 1.5
"""Ratios of arrivals, and of their prompt tokens, to the usual ones that count as more."""
AWAY = 0.02
"""Additional share of the time in which gateways are blocked that makes measured times uncertain."""
AFTER_S = 60.0
"""Seconds by which the onset may be early or late: an event farther from it is no cause of it."""
BY_CHANCE = 4.0
"""Standard deviations of Poisson arrivals by which more requests must exceed the usual ones."""


class IncidentCause(msgspec.Struct, frozen=True, kw_only=True):
    """One possible cause. `figures` are the evidence, by name: rates per second, shares 0..1, seconds, counts."""

    kind: str
    subject: str = ""
    """Id of the engine, tenant, prefix, node or link, or number of the version."""
    name: str = ""
    score: float
    """Confidence, 0..1."""
    figures: dict[str, float] = {}
    text: str = ""
    """Reported reason or description, if there is one."""

    @property
    def identity(self) -> tuple[str, str]:
        """Return what distinguishes it from other causes."""
        return self.kind, self.subject


def find_causes(
    log: SignLog, pool_ids: Iterable[str], onset: float, changes: Sequence[Change], *, gateways_only: bool = False
) -> list[IncidentCause]:
    """Return the possible causes of trouble in these pools, the likeliest first; empty without readings of them.

    `gateways_only`: only what makes gateways late.
    """
    scenes = [scene_of(log, pool_id, onset, changes) for pool_id in pool_ids]
    rules = (_gateway, _flood) if gateways_only else _RULES
    return ranked([cause for scene in scenes if scene is not None for rule in rules for cause in rule(scene)])


def ranked(causes: Iterable[IncidentCause]) -> list[IncidentCause]:
    """Return the causes, likeliest first, each once and without unlikely ones.

    Those whose signs a certain stronger cause explains have a lower score.
    """
    listed = sorted((cause for cause in causes if cause.score >= LISTED), key=lambda cause: cause.score)
    best = {cause.identity: cause for cause in listed}
    return sorted(_yielding([*best.values()]), key=lambda cause: (-round(cause.score, 2), cause.kind, cause.subject))


def is_certain(causes: Sequence[IncidentCause]) -> bool:
    """Return whether the first of the ranked causes may be called the cause."""
    if not causes or causes[0].score < CERTAIN:
        return False
    return len(causes) == 1 or causes[0].score - causes[1].score >= MARGIN


_STRONGER: dict[str, tuple[str, ...]] = {
    GATEWAY: (FLOOD,),
    DEMAND: (FLOOD, GATEWAY, LINK, REGION),
    SLOW: (CRASHED, FROZEN, LOST, GATEWAY, TOKENIZER),
    TOKENIZER: (CRASHED, FROZEN, LOST),
    FAILS: (CRASHED, FROZEN, LOST),
    LOST: (CRASHED, FROZEN, GATEWAY, LINK, REGION),
    HOT_PREFIX: (FLOOD, CRASHED, FROZEN, SLOW, POLICY),
    TEMPLATE: (FLOOD, CRASHED, LOST, POLICY, SCALED_DOWN, EVICTIONS, NODE, BLIND),
    EVICTIONS: (CRASHED, LOST, POLICY, SCALED_DOWN),
    POLICY: (CRASHED, FROZEN, LOST, FLOOD, GATEWAY),
    SCALED_DOWN: (CRASHED, FLOOD),
    BLIND: (CRASHED, LOST, GATEWAY),
}
"""Cause → causes that explain its signs as their own effects."""
_YIELDS_TO = CERTAIN - MARGIN - 0.05
"""Highest confidence of a cause that yields, so that it never makes the stronger one uncertain."""


def _yielding(causes: Sequence[IncidentCause]) -> list[IncidentCause]:
    """Return the causes; those whose signs a certain stronger cause explains have a lower score."""
    certain = {cause.kind for cause in causes if cause.score >= CERTAIN}
    return [
        msgspec.structs.replace(cause, score=min(cause.score, _YIELDS_TO))
        if certain & set(_STRONGER.get(cause.kind, ()))
        else cause
        for cause in causes
    ]


def _more_away(scene: Scene) -> float:
    """Return by how much the share of the time in which gateways were blocked exceeds the usual one."""
    return scene.during.away_share() - (scene.before.away_share() if scene.before is not None else 0.0)


def _gateway(scene: Scene) -> list[IncidentCause]:
    """Gateways were blocked although no more requests arrived."""
    share, more = scene.during.away_share(), _more_away(scene)
    if more < 0.05:
        return []
    score = 0.55 + min(0.4, 1.5 * more)
    growth = scene.growth
    if growth is None:
        # A flood would have the same sign.
        score = min(score, CERTAIN - 0.01)
    elif growth >= GROWN:
        score -= 0.25
    figures = {"away_share": share, "growth": growth or 0.0}
    return [IncidentCause(kind=GATEWAY, score=score, figures=figures)]


def _flood(scene: Scene) -> list[IncidentCause]:
    """One tenant sends most of the additional requests, or of the additional tokens; or all tenants send more."""
    during, before, growth = scene.during, scene.before, scene.growth
    if before is None or growth is None or _breaks_only(during.outcomes()):
        return []
    per_s, usual_per_s = during.arrivals_per_s(), before.arrivals_per_s()
    more_requests = growth >= GROWN and _beyond_chance(during, usual_per_s, per_s)
    # Clients that wait for answers send fewer requests while a flood of long prompts delays them.
    longer = during.prompt_tokens_per_s() / max(1.0, before.prompt_tokens_per_s())
    if not more_requests and longer < LONGER:
        return []
    figures = {"growth": growth, "per_s": per_s, "usual_per_s": usual_per_s}
    now, usual = during.tables(), before.tables()
    ended_s, usual_s = requests(now[ALL][""]) / during.span_s, requests(usual[ALL][""]) / before.span_s
    rates = {
        tenant: (requests(counts) / during.span_s, requests(usual.get("tenants", {}).get(tenant, NONE)) / before.span_s)
        for tenant, counts in now.get("tenants", {}).items()
        if tenant
    }
    more = sum(max(0.0, rate - old) for rate, old in rates.values())
    # The growth of an only tenant is the fleet's.
    if more > 0 and len(rates) > 1:
        tenant = max(sorted(rates), key=lambda item: rates[item][0] - rates[item][1])
        rate, old = rates[tenant]
        part = (rate - old) / more
        # If all send more, the largest tenant sends most of it, too.
        least = max(0.6, old / max(usual_s, 1e-9) + 0.15)
        if part >= min(least, 0.95) and rate >= 1.5 * old and (more_requests or _beyond_chance(during, old, rate)):
            grown = max(growth if more_requests else 0.0, longer)
            score = 0.45 + 0.25 * max(0.0, min(1.0, grown - 1.0)) + 0.25 * part
            score = score if before.span_s >= KNOWN_S else min(score, CERTAIN - 0.01)
            figures |= {
                "tenant_per_s": rate,
                "tenant_usual_per_s": old,
                "tenant_share": rate / max(ended_s, 1e-9),
                "tenant_usual_share": old / max(usual_s, 1e-9),
            }
            return [IncidentCause(kind=FLOOD, subject=tenant, name=tenant, score=min(0.95, score), figures=figures)]
    score = min(0.8, 0.45 + 0.25 * (growth - 1.0))
    return [IncidentCause(kind=DEMAND, score=score, figures=figures)] if more_requests else []


def _breaks_only(outcomes: Outcomes) -> bool:
    """Return whether requests failed and none was late or rejected, which more requests do not cause."""
    return outcomes[FAILED] > 0 and outcomes[LATE] == outcomes[REJECTED] == 0


def _beyond_chance(during: Interval, usual_per_s: float, per_s: float) -> bool:
    """Return whether more requests came than Poisson arrivals at the usual rate explain."""
    expected = usual_per_s * during.span_s
    return per_s * during.span_s - expected >= BY_CHANCE * math.sqrt(max(1.0, expected))


def _crashed(scene: Scene) -> list[IncidentCause]:
    """An engine's process ended: it restarted, or nothing listens at its address."""
    # An engine that crashed earlier has served again since.
    crashes = {item.subject: item for item in scene.changed("crash") if item.at >= scene.onset - AFTER_S}
    matches = []
    for engine in scene.engines:
        restarted = restarted_at(scene.log, engine, scene.onset - AFTER_S)
        gone = engine.state == "lost" and ("refused" in engine.reason or "exit" in engine.reason)
        crash = crashes.get(engine.engine_id)
        if restarted is None and not gone and crash is None:
            continue
        at = min(item for item in (restarted, crash.at if crash else None, engine.since if gone else None) if item)
        if at > scene.onset + AFTER_S or _was_silent(scene, engine, at):
            continue
        text = crash.text if crash is not None else engine.reason if gone else ""
        matches.append(_of(engine, CRASHED, 0.95, text, at=at))
    return matches


def _was_silent(scene: Scene, engine: EngineSigns, until: float) -> bool:
    """Return whether the engine did not answer before `until`: its later signs are then effects or the cure."""
    earlier = (
        item.engines.get(engine.engine_id) for item in scene.log.readings(scene.onset - AFTER_S) if item.at < until
    )
    return any(
        old is not None and old.state in ("lost", "quarantined") and _says(old.reason, _SILENT) for old in earlier
    )


def _says(reason: str, words: Sequence[str]) -> bool:
    return any(word in reason for word in words)


def _frozen(scene: Scene) -> list[IncidentCause]:
    """An engine with requests makes no progress while other engines do; or it is lost in another way."""
    recent, longer = (scene.log.recent(scene.pool_id, span_s) for span_s in (STILL_S, LONG_STILL_S))
    if recent is None or longer is None or recent.span_s < STILL_S / 2:
        return []
    moved = any(now.progress > old.progress for old, now in recent.engines())
    quiet = {now.engine_id for old, now in longer.engines() if now.progress == old.progress and old.running >= 2}
    matches = []
    for old, now in recent.engines():
        silent, slow = _says(now.reason, _SILENT), now.state in SICK and _says(now.reason, _CRAWLS)
        restarted = restarted_at(scene.log, now, scene.onset - AFTER_S) is not None
        if restarted or slow or _says(now.reason, ("refused",)) or crawls(scene.log, now):
            continue
        # Without requests, an engine that was quarantined for another reason makes no progress, either.
        out = now.state == "lost" or (now.state == "quarantined" and now.running > 0)
        still = now.progress == old.progress and now.incarnation == old.incarnation
        figures = {"still_s": recent.span_s, "at": now.since}
        if still and (out or silent):
            matches.append(_of(now, FROZEN, 0.9 if moved and silent else 0.75, now.reason, **figures))
        elif now.engine_id in quiet and now.running >= 2 and moved and longer.span_s >= 0.9 * LONG_STILL_S:
            figures |= {"still_s": longer.span_s, "at": longer.first.at}
            matches.append(_of(now, FROZEN, 0.7, now.reason, **figures))
        elif now.state == "lost":
            # It moved until a moment ago: it may be frozen, or only its network is cut.
            matches.append(_of(now, FROZEN, 0.6 if silent else 0.4, now.reason, **figures))
            matches.append(_of(now, LOST, 0.55 if silent else 0.8, now.reason, **figures))
    # Several engines that stop at once have a common cause outside of them.
    if len(matches) > 1 and len(matches) >= len(recent.engines()) / 2:
        return [msgspec.structs.replace(item, score=item.score - 0.3) for item in matches]
    return matches


def _slow(scene: Scene) -> list[IncidentCause]:
    """An engine takes longer than its estimate, by a multiple of the other engines', or is sick for that reason.

    A gateway that is late measures times that are not the engine's, so that it is no certain witness.
    """
    most = CERTAIN - 0.01 if _more_away(scene) >= AWAY else 1.0
    sick = [item for item in scene.engines if item.state in SICK and _says(item.reason, _CRAWLS)]
    matches = [_of(item, SLOW, min(most, 0.75), item.reason) for item in sick]
    known = [item for item in scene.engines if item.slowness is not None and item.slowness_samples >= 3]
    for engine in known if len(known) > 1 else ():
        others = statistics.median(item.slowness or 1.0 for item in known if item is not engine)
        ratio = (engine.slowness or 1.0) / max(1.0, others)
        if ratio >= 1.8 and engine.slowness_samples >= 5:
            # Engines that are all slow have a common cause outside of them. The more the others are, the less is it
            # this engine.
            score = min(0.9, 0.5 + 0.1 * ratio) - 0.5 * max(0.0, others - 1.0) if others < 1.8 else LISTED
            matches.append(_of(engine, SLOW, min(most, score), engine.reason, ratio=ratio))
    return matches


def _fails(scene: Scene) -> list[IncidentCause]:
    """Requests fail on one engine in a row."""
    worst = max(scene.engines, key=lambda item: (item.failures_in_row, item.engine_id), default=None)
    if worst is None or worst.failures_in_row < 3:
        return []
    row = worst.failures_in_row
    return [_of(worst, FAILS, min(0.8, 0.5 + 0.05 * row), worst.reason, failures=row)]


def _tokenizer(scene: Scene) -> list[IncidentCause]:
    """One engine returns the tokens of prompts late, and with them the decisions that wait for them."""
    late = scene.during.late_tokenizers()
    total = sum(late.values())
    if total < 5:
        return []
    engine_id = max(sorted(late), key=lambda item: late[item])
    share = late[engine_id] / total
    usual = sum(scene.before.late_tokenizers().values()) / scene.before.span_s if scene.before is not None else 0.0
    if total / scene.during.span_s < 3 * usual or share < 0.5:
        return []
    engine = scene.newest.engines[engine_id]
    recent = scene.log.recent(scene.pool_id, STILL_S)
    moves = recent is not None and any(now is engine and now.progress != old.progress for old, now in recent.engines())
    # Without progress or answers, the whole engine may be frozen, or was.
    score = 0.4 + 0.45 * share if moves and not _was_silent(scene, engine, math.inf) else 0.55
    return [_of(engine, TOKENIZER, score, "", late=late[engine_id], share=share)]


def _blind(scene: Scene) -> list[IncidentCause]:
    """An engine's index went blind around the onset."""
    matches = []
    for old, now in scene.during.engines():
        before = scene.before.last.engines.get(now.engine_id) if scene.before is not None else None
        if now.trust == "blind" and "exact" in (old.trust, before.trust if before is not None else ""):
            matches.append(_of(now, BLIND, 0.65, now.reason))
    return matches


def _hot_prefix(scene: Scene) -> list[IncidentCause]:
    """One prefix makes much of the pool's work, more than before, and few engines hold most of the work."""
    prefixes = scene.newest.pools[scene.pool_id].prefixes
    if not prefixes:
        return []
    key = max(sorted(prefixes), key=lambda item: prefixes[item])
    share = prefixes[key]
    usual = scene.before.last.pools[scene.pool_id].prefixes.get(key, 0.0) if scene.before is not None else 0.0
    loads = sorted(item.in_flight_s for item in scene.engines)
    uneven = len(loads) >= 3 and loads[-1] >= 2.0 and loads[-1] >= 4 * max(0.25, statistics.median(loads))
    if share < 0.3 or share < 1.8 * usual or not uneven:
        return []
    score = min(0.9, 0.55 + 0.5 * share)
    return [IncidentCause(kind=HOT_PREFIX, subject=key, score=score, figures={"share": share, "usual": usual})]


def _misses(scene: Scene) -> list[IncidentCause]:
    """Engines evicted much more than before; or hits fell at once, because prompts do not begin as they did."""
    if scene.before is None:
        return []
    now, usual = scene.during.expected_share(), scene.before.expected_share()
    if now is None or usual is None or now > 0.75 * usual:
        now, usual = scene.during.reported_share(), scene.before.reported_share()
    removed, before = scene.during.removed_per_s(), scene.before.removed_per_s()
    fall = min(0.15, usual - now) if now is not None and usual is not None else 0.0
    named = ("hit", now), ("usual_hit", usual), ("removed_per_s", removed), ("usual_removed_per_s", before)
    figures = {name: value for name, value in named if value is not None}
    evicted, usually = scene.during.evicted_share() or 0.0, scene.before.evicted_share()
    if usually is not None and evicted >= max(EVICTED_SHARE, EVICTED_TIMES * usually):
        return [IncidentCause(kind=EVICTIONS, score=0.75 + max(0.0, fall), figures=figures)]
    if now is None or usual is None or usual - now < 0.12 or now > 0.75 * usual:
        return []
    if removed is None or before is None or removed >= 1.8 * max(before, 1.0):
        # Blocks that are computed again push out others. Such evictions leave the prefixes that are always in use.
        recent = scene.log.recent(scene.pool_id, 2 * CACHE_S / 3)
        last = recent.expected_share() if recent is not None else None
        scores = {EVICTIONS: 0.45, TEMPLATE: 0.7 if last is not None and last < 0.02 else 0.5}
        return [IncidentCause(kind=kind, score=score, figures=figures) for kind, score in scores.items()]
    return [IncidentCause(kind=TEMPLATE, score=0.7 + fall, figures=figures)]


def _policy(scene: Scene) -> list[IncidentCause]:
    """A policy version went live shortly before the onset."""
    # What came after the onset did not cause it; a few seconds may be the difference of clocks.
    changes = [item for item in scene.changed("policy") if item.at <= scene.onset + 5.0]
    if not changes:
        return []
    nearest, figures = changes[0], {"before_s": max(0.0, scene.onset - changes[0].at)}
    score = 0.75 - 0.3 * figures["before_s"] / CHANGE_S
    return [IncidentCause(kind=POLICY, subject=nearest.subject, score=score, text=nearest.text, figures=figures)]


def _scaled_down(scene: Scene) -> list[IncidentCause]:
    """Engines left shortly before the onset, and the others hold more work than before."""
    left = {item.subject: item for item in scene.changed("leave") if item.at <= scene.onset + 5.0}
    serving = [item for item in scene.engines if item.state in ("serving", "hot", "degraded")]
    if not left or not serving:
        return []
    gone = len(left) / (len(left) + len(serving))
    nearest = min(left.values(), key=lambda item: abs(item.at - scene.onset))
    score = min(0.85, 0.5 + 0.8 * gone) - (0.1 if scene.growth is not None and scene.growth >= GROWN else 0.0)
    figures = {"left": float(len(left)), "serving": float(len(serving)), "before_s": max(0.0, scene.onset - nearest.at)}
    return [IncidentCause(kind=SCALED_DOWN, subject=nearest.subject, score=score, text=nearest.text, figures=figures)]


def _outages(scene: Scene) -> list[IncidentCause]:
    """A node, a link, or a region was cut off around the onset; a canary was aborted."""
    near = [item for item in scene.newest.outages if -CHANGE_S <= scene.onset - item.since <= CHANGE_S]
    matches = [outage_cause(item, _OUTAGE_SCORES[item.kind]) for item in near if item.kind in _OUTAGE_SCORES]
    aborted = scene.changed("canary")[:1]
    return matches + [IncidentCause(kind=CANARY, subject=item.subject, score=0.65, text=item.text) for item in aborted]


_OUTAGE_SCORES = {"node": 0.65, "link": 0.7, "region": 0.75}
"""Kind of an outage → confidence that it is why requests are late. A failing job hits no request."""


def outage_cause(outage: Outage, score: float = 0.9) -> IncidentCause:
    """Return the outage as a cause; without requests hit, it is the trouble itself."""
    kind, name = _OF_OUTAGES[outage.kind], outage.name
    return IncidentCause(kind=kind, subject=name, name=name, score=score, figures={"at": outage.since})


def _of(engine: EngineSigns, kind: str, score: float, text: str, **figures: float) -> IncidentCause:
    return IncidentCause(
        kind=kind, subject=engine.engine_id, name=engine.name, score=min(0.95, score), text=text, figures=figures
    )


_RULES: tuple[Callable[[Scene], list[IncidentCause]], ...] = (
    _gateway,
    _flood,
    _crashed,
    _frozen,
    _slow,
    _fails,
    _tokenizer,
    _blind,
    _hot_prefix,
    _misses,
    _policy,
    _scaled_down,
    _outages,
)
