"""Relieve engines that stay hot: widen their hot prefixes to more engines, and move queued requests away.

Two candidates per prefix bound the load of most traffic, but one prefix with more than its share keeps its engines hot
even if queued requests migrate (DualMap §3.3; d > 2 in A.9). Such a prefix gets one more candidate at a time, in ring
order, and returns them in calm times. A low coefficient of variation alone is not a goal: while many tokens are
recomputed that another engine holds, no prefix is widened further.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from planning.documents.rebalance_document import RebalanceDocument
from planning.facts.fleet_facts import ACTIVE, EngineObservation, PoolFacts, PrefixFacts, known
from planning.facts.reason import Reason
from planning.rebalance.rebalance_plan import MigrateRequests, RebalanceMemory, RebalancePlan, Widened
from routing.values.counted import count

NEEDED = 0.5
"""A prefix needs no more engines if its work is below this share of its usual engines' capacity."""


class _PoolReading(msgspec.Struct, frozen=True, kw_only=True):
    """The pool in one round."""

    work_s: dict[str, float]
    """Engine id → in-flight work of the serving engines."""
    mean_s: float
    cv: float
    """Load CV, as on the Fleet page and in /metrics."""
    hot: tuple[str, ...]
    """Engines that have been hot for long enough, hottest first."""
    recomputed: float | None


def plan_rebalance(
    facts: PoolFacts,
    prefixes: Sequence[PrefixFacts],
    memory: RebalanceMemory,
    settings: RebalanceDocument,
    *,
    usual_d: int = 2,
) -> tuple[RebalancePlan, RebalanceMemory]:
    """Return the plan of this round, and the memory for the next one.

    `prefixes` are the most used ones. `usual_d` is the number of candidates that the placement gives every prefix; 0 if
    it can choose any engine, so that no prefix can be widened.
    """
    now_s = facts.now_s
    serving = [engine for engine in facts.engines if engine.lifecycle == ACTIVE]
    reading, memory = _read(facts, serving, memory, settings)
    even_since_s = None
    if reading.cv <= settings.cv_low:
        even_since_s = memory.even_since_s if memory.even_since_s is not None else now_s
    memory = _needed(prefixes, memory, len(reading.work_s), usual_d, now_s)
    widened, wider, reasons = _widen(reading, prefixes, memory, settings, now_s, usual_d)
    widened, narrower, calm = _narrow(widened, even_since_s, settings, now_s)
    moves = _moves(reading, serving, settings)
    plan = RebalancePlan(
        pool_id=facts.pool_id,
        at_s=now_s,
        widened={key: widening.d for key, widening in sorted(widened.items())},
        wider=tuple(wider),
        narrower=tuple(narrower),
        moves=moves,
        load_cv=reading.cv,
        hot=reading.hot,
        recomputed_share=reading.recomputed,
        reasons=(*reasons, *calm, *_outcome(reading, moves, settings)),
    )
    return plan, msgspec.structs.replace(memory, widened=widened, even_since_s=even_since_s)


def _read(
    facts: PoolFacts, serving: Sequence[EngineObservation], memory: RebalanceMemory, settings: RebalanceDocument
) -> tuple[_PoolReading, RebalanceMemory]:
    work_s = {item.engine_id: work for item in serving if (work := known(item.in_flight_s)) is not None}
    count = len(work_s)
    mean_s = sum(work_s.values()) / count if count else 0.0
    cv = facts.windows[-1].load_cv if facts.windows else 0.0
    limit_s = max(settings.hot_factor * mean_s, settings.hot_work_s)
    since_s = {
        name: memory.hot_since_s.get(name, facts.now_s)
        for name, work in work_s.items()
        # A single engine has no other to relieve it.
        if count > 1 and work >= limit_s and work > 0
    }
    lasting = [name for name, moment in since_s.items() if facts.now_s - moment >= settings.hold_s]
    hot = tuple(sorted(lasting, key=lambda name: (-work_s[name], name)))
    tokens = sum(window.prompt_tokens for window in facts.windows if window.prompt_tokens > 0)
    recomputed = sum(window.recomputed_tokens for window in facts.windows if window.recomputed_tokens > 0)
    share = min(recomputed / tokens, 1.0) if tokens else None
    reading = _PoolReading(work_s=work_s, mean_s=mean_s, cv=cv, hot=hot, recomputed=share)
    return reading, msgspec.structs.replace(memory, hot_since_s=since_s)


def _widen(
    reading: _PoolReading,
    prefixes: Sequence[PrefixFacts],
    memory: RebalanceMemory,
    settings: RebalanceDocument,
    now_s: float,
    usual_d: int,
) -> tuple[dict[str, Widened], list[str], list[Reason]]:
    """Give the hottest prefix of each hot engine one more candidate, up to the limit of widened prefixes."""
    widened = dict(memory.widened)
    wider: list[str] = []
    reasons: list[Reason] = []
    if not usual_d or not reading.hot or reading.cv < settings.cv_high:
        return widened, wider, reasons
    # An even load is no goal in itself: each further engine of a prefix computes it again.
    if reading.recomputed is not None and reading.recomputed > settings.recomputed_share:
        text = f"{100 * reading.recomputed:.0f} % of prompt tokens are recomputed: no prefix is widened further"
        return widened, wider, [Reason("recomputing", text)]
    for engine_id in reading.hot:
        prefix = _hottest(engine_id, prefixes, settings)
        if prefix is None:
            reasons.append(
                Reason("no_hot_prefix", f"no prefix causes {settings.prefix_share:.2f} of the work of {engine_id}")
            )
            continue
        before = widened.get(prefix.key)
        d = (before.d if before is not None else usual_d) + 1
        # The last widening needs time to take effect.
        if prefix.key in wider or (before is not None and now_s - before.since_s < settings.hold_s):
            continue
        if d > min(settings.d_max, len(reading.work_s)):
            reasons.append(Reason("widest", f"prefix {prefix.key} has {d - 1} candidates, the maximum"))
        elif before is None and len(widened) >= settings.max_widened:
            reasons.append(Reason("full", f"{len(widened)} prefixes are widened, the maximum"))
        else:
            widened[prefix.key] = Widened(d, now_s, now_s)
            wider.append(prefix.key)
            share = prefix.work_s_by_engine[engine_id] / _work_of(engine_id, prefixes)
            text = f"prefix {prefix.key} causes {100 * share:.0f} % of the work of {engine_id}: {d} candidates"
            reasons.append(Reason("hot_prefix", text))
    return widened, wider, reasons


def _needed(
    prefixes: Sequence[PrefixFacts], memory: RebalanceMemory, engines: int, usual_d: int, now_s: float
) -> RebalanceMemory:
    """Update when each widened prefix last brought more than half of the work that its usual engines can do."""
    work_s = {prefix.key: sum(known(work) or 0.0 for work in prefix.work_s_by_engine.values()) for prefix in prefixes}
    # `usual_d` of all engines carry this part of the work if the load is even.
    limit_s = NEEDED * usual_d / max(engines, 1) * sum(work_s.values())
    widened = {
        key: msgspec.structs.replace(widening, needed_s=now_s) if work_s.get(key, 0.0) > limit_s else widening
        for key, widening in memory.widened.items()
    }
    return msgspec.structs.replace(memory, widened=widened)


def _work_of(engine_id: str, prefixes: Sequence[PrefixFacts]) -> float:
    return sum(known(prefix.work_s_by_engine.get(engine_id)) or 0.0 for prefix in prefixes)


def _hottest(engine_id: str, prefixes: Sequence[PrefixFacts], settings: RebalanceDocument) -> PrefixFacts | None:
    """Return the prefix with the largest share of an engine's work, if it is large enough.

    The smaller key wins ties.
    """
    total_s = _work_of(engine_id, prefixes)
    if total_s <= 0:
        return None
    first = min(prefixes, key=lambda prefix: (-(known(prefix.work_s_by_engine.get(engine_id)) or 0.0), prefix.key))
    return first if (known(first.work_s_by_engine.get(engine_id)) or 0.0) >= settings.prefix_share * total_s else None


def _narrow(
    widened: dict[str, Widened], even_since_s: float | None, settings: RebalanceDocument, now_s: float
) -> tuple[dict[str, Widened], list[str], list[Reason]]:
    """Return prefixes to their usual candidates after they, or the whole load, have been calm for long enough."""
    even = even_since_s is not None and now_s - even_since_s >= settings.cool_down_s
    over = sorted(
        key
        for key, widening in widened.items()
        if now_s - widening.since_s >= settings.cool_down_s
        and (even or now_s - widening.needed_s >= settings.cool_down_s)
    )
    kept = {key: widening for key, widening in widened.items() if key not in over}
    why = "the load was even" if even else "they were not hot"
    reasons = [Reason("calm", f"{why} for {settings.cool_down_s:.0f} s: {len(over)} prefixes narrowed")] if over else []
    return kept, over, reasons


def _moves(
    reading: _PoolReading, serving: Sequence[EngineObservation], settings: RebalanceDocument
) -> tuple[MigrateRequests, ...]:
    """Return the queued requests that can leave the hot engines, hottest first, within the round's limit."""
    queued_requests = {item.engine_id: item.bound for item in serving}
    left = settings.max_moves
    moves: list[MigrateRequests] = []
    for engine_id in reading.hot:
        count = min(queued_requests.get(engine_id, 0), left)
        if count > 0:
            moves.append(MigrateRequests(engine_id, count))
            left -= count
    return tuple(moves)


def _outcome(reading: _PoolReading, moves: Sequence[MigrateRequests], settings: RebalanceDocument) -> list[Reason]:
    """Return the round's moves as reasons, or why no action was needed."""
    if moves:
        queued_requests = count(sum(move.at_most for move in moves), "queued request")
        return [
            Reason("hot_engine", f"{', '.join(reading.hot)} {_stay(reading.hot)} hot: up to {queued_requests} may move")
        ]
    if reading.hot:
        return [
            Reason(
                "no_queued_requests",
                f"{', '.join(reading.hot)} {_stay(reading.hot)} hot, but no request is queued there",
            )
        ]
    if len(reading.work_s) < 2:
        return [Reason("no_choice", "fewer than two engines to balance")]
    return [Reason("no_hotspot", _spread(reading, settings))]


def _spread(reading: _PoolReading, settings: RebalanceDocument) -> str:
    if reading.cv < settings.cv_high:
        return f"even: load CV {reading.cv:.2f}, limit {settings.cv_high:.2f}"
    figures = f"load CV {reading.cv:.2f}, limit {settings.cv_high:.2f}"
    return f"uneven ({figures}), but no engine has been hot for {settings.hold_s:g} s"


def _stay(engines: Sequence[str]) -> str:
    return "stays" if len(engines) == 1 else "stay"
