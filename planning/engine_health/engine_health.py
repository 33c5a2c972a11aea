"""Judge the engines of a pool by their progress, not by their /health.

Each engine is healthy, suspect, quarantined, or in probation. A lasting fault (planning.engine_health.health_signs)
quarantines an engine. So does missing progress while another engine of its role makes progress, for at most half of the
pool and until the engine makes progress again, because it can just be slow. So does being an outlier, but only for a
tenth of the pool (at least one engine), and not while fewer than half are healthy, because then the engines are not the
cause. The n-th consecutive quarantine lasts n times as long. A returning engine starts with a small share of its load.
While no other engine of its role serves, an engine is quarantined only for a fault, and only as long as the fault
lasts, because clients would have no other engine.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec

from planning.documents.health_document import HealthDocument
from planning.engine_health.health_memory import EngineHealthMemory, HealthMemory, first_memory, remembered
from planning.engine_health.health_signs import (
    FAULT,
    FLAPPING,
    OUTLIER,
    OUTLIER_CODES,
    SELF_CLEARING_FAULTS,
    SUSPICION,
    SUSPICION_CODES,
    Sign,
    signs_of,
)
from planning.engine_health.health_verdict import (
    HEALTHY,
    NEWCOMER,
    PROBATION,
    QUARANTINED,
    SUSPECT,
    HealthPlan,
    HealthVerdict,
)
from planning.facts.fleet_facts import ACTIVE, EngineObservation, PoolFacts, Role
from planning.facts.peer_speeds import PeerSpeeds
from planning.facts.reason import Reason

OUTLIER_LIMIT, LAST_OF_ROLE = "outlier_limit", "last_of_role"
"""Reason codes for outliers that keep their state."""


class _Judged(msgspec.Struct, frozen=True):
    facts: EngineObservation
    memory: EngineHealthMemory
    signs: tuple[Sign, ...]

    def lasting(self, grade: str, now_s: float) -> Sign | None:
        """Return the first sign of this grade that has lasted long enough."""
        for sign in self.signs:
            if sign.grade == grade and now_s - self.memory.signs.get(sign.code, now_s) >= sign.hold_s:
                return sign
        return None

    def out_for(self, codes: frozenset[str]) -> bool:
        """Return whether it is quarantined for one of these codes."""
        return self.memory.state == QUARANTINED and self.memory.code in codes

    def stalls_while_others_move(self, others: Sequence[_Judged]) -> bool:
        """Return whether another engine of its role has made progress since this one stopped."""
        suspicion = next((sign for sign in self.signs if sign.grade == SUSPICION), None)
        return suspicion is not None and any(
            other.facts.role == self.facts.role and (other.memory.moved_s or 0.0) > suspicion.still_since_s
            for other in others
            if other is not self
        )


def plan_health(
    facts: PoolFacts, memory: HealthMemory, settings: HealthDocument, *, newcomer_slow_start_s: float = 0.0
) -> tuple[HealthPlan, HealthMemory]:
    """Return a verdict on each engine, and the memory for the next round.

    Engines that should not serve (starting, draining, out) are not judged and start without a history afterwards. A new
    engine gets a growing share of the load over `newcomer_slow_start_s` (ScalingDocument.slow_start_s).
    """
    now_s = facts.now_s
    active = [engine for engine in facts.engines if engine.lifecycle == ACTIVE]
    speeds = PeerSpeeds(active, settings)
    judged = [_judge(item, speeds, memory, settings, facts.tpot_slo_s, now_s) for item in active]
    panic = _panics(judged, settings, now_s)
    # Max ejection, at least one engine; those that are out already count.
    room = max(1, int(settings.outlier_share * len(judged))) - sum(item.out_for(OUTLIER_CODES) for item in judged)
    suspicions = len(judged) // 2 - sum(item.out_for(SUSPICION_CODES) for item in judged)
    serving = Counter(item.facts.role for item in judged if item.memory.state != QUARANTINED)
    moved: dict[str, EngineHealthMemory] = {}
    held_back: dict[str, str] = {}
    for item in judged:
        role, served = item.facts.role, item.memory.state != QUARANTINED
        # The engine itself does not count among those that could do its work.
        serving[role] -= served
        alone = not _can_do(role, serving)
        may_suspect = suspicions > 0 and not alone and item.stalls_while_others_move(judged)
        may_eject = room > 0 and not panic and not alone
        after = _moved(item, settings, now_s, may_suspect=may_suspect, may_eject=may_eject, alone=alone)
        serving[role] += served and after.state != QUARANTINED
        if after.state == QUARANTINED and after.code in SUSPICION_CODES and not item.out_for(SUSPICION_CODES):
            suspicions -= 1
        if after.state == QUARANTINED and after.code in OUTLIER_CODES and not item.out_for(OUTLIER_CODES):
            room -= 1
        elif after.state != QUARANTINED and item.lasting(OUTLIER, now_s) is not None:
            held_back[item.facts.engine_id] = LAST_OF_ROLE if alone else OUTLIER_LIMIT
        moved[item.facts.engine_id] = after
    verdicts = tuple(
        _verdict(engine, moved.get(engine.engine_id), panic, settings, now_s, newcomer_slow_start_s)
        for engine in facts.engines
    )
    changed = tuple(
        verdict.engine_id
        for verdict in verdicts
        if verdict.engine_id in moved and _differs(memory.engines.get(verdict.engine_id), moved[verdict.engine_id])
    )
    reasons = _reasons(verdicts, moved, changed, held_back, panic, settings)
    plan = HealthPlan(
        pool_id=facts.pool_id, at_s=now_s, verdicts=verdicts, changed=changed, panic=panic, reasons=reasons
    )
    return plan, HealthMemory(moved)


def _judge(
    facts: EngineObservation,
    speeds: PeerSpeeds,
    memory: HealthMemory,
    settings: HealthDocument,
    tpot_slo_s: float,
    now_s: float,
) -> _Judged:
    before = memory.engines.get(facts.engine_id)
    now = first_memory(facts, now_s) if before is None else remembered(before, facts, now_s)
    signs = signs_of(facts, now, speeds.peers_of(facts), settings, tpot_slo_s, now_s)
    shown = {sign.code: now.signs.get(sign.code, now_s) for sign in signs}
    return _Judged(facts, msgspec.structs.replace(now, signs=shown), tuple(signs))


def _can_do(role: Role, others: Counter[Role]) -> bool:
    """Return whether the other engines, counted by role, can do the work of one with this role."""
    return bool(others["mixed"] or others[role] or (role == "mixed" and others["prefill"] and others["decode"]))


def _panics(judged: Sequence[_Judged], settings: HealthDocument, now_s: float) -> bool:
    """Return whether too few engines are healthy to treat outliers as exceptions."""
    sick = sum(
        item.memory.state == QUARANTINED
        or any(item.lasting(grade, now_s) is not None for grade in (FAULT, SUSPICION, OUTLIER))
        for item in judged
    )
    return bool(judged) and len(judged) - sick < settings.panic_share * len(judged)


def _moved(
    judged: _Judged, settings: HealthDocument, now_s: float, *, may_suspect: bool, may_eject: bool, alone: bool
) -> EngineHealthMemory:
    """Return the engine's memory with its next state. `alone` means that no other engine of its role serves."""
    memory = judged.memory
    if memory.state == QUARANTINED:
        return _quarantined(judged, settings, now_s, alone=alone)
    sick = (
        judged.lasting(FAULT, now_s)
        or (judged.lasting(SUSPICION, now_s) if may_suspect else None)
        or (judged.lasting(OUTLIER, now_s) if may_eject else None)
    )
    if sick is not None:
        return _eject(memory, sick, settings, now_s)
    # Weaker signs do not interrupt the slow start.
    if memory.state == PROBATION and now_s - memory.since_s < settings.slow_start_s:
        return memory
    if judged.signs:
        sign = judged.signs[0]
        since_s = memory.since_s if memory.state == SUSPECT else now_s
        return msgspec.structs.replace(
            memory, state=SUSPECT, code=sign.code, text=sign.text, since_s=since_s, until_s=None
        )
    since_s = memory.since_s if memory.state == HEALTHY else now_s
    # A long healthy time clears the record of quarantines.
    long_well = memory.state == HEALTHY and now_s - since_s >= settings.ejection_max_s
    ejections = 0 if long_well else memory.ejections
    return msgspec.structs.replace(
        memory, state=HEALTHY, code="", text="", since_s=since_s, until_s=None, ejections=ejections
    )


def _eject(memory: EngineHealthMemory, sign: Sign, settings: HealthDocument, now_s: float) -> EngineHealthMemory:
    # A suspicion prolongs no later quarantine: the engine may only have been slow.
    ejections = memory.ejections + (sign.code not in SUSPICION_CODES)
    term_s = min(settings.ejection_s * ejections, settings.ejection_max_s)
    until_s = None if sign.code in SELF_CLEARING_FAULTS | SUSPICION_CODES else now_s + term_s
    return msgspec.structs.replace(
        memory,
        state=QUARANTINED,
        code=sign.code,
        text=sign.text,
        since_s=now_s,
        until_s=until_s,
        ejections=ejections,
        # Counted once: the same losses must not eject the engine again when it returns.
        flaps=() if sign.code == FLAPPING else memory.flaps,
    )


def _quarantined(judged: _Judged, settings: HealthDocument, now_s: float, *, alone: bool) -> EngineHealthMemory:
    """Return the memory of an engine that stays quarantined or returns on probation."""
    memory = judged.memory
    fault = next((sign for sign in judged.signs if sign.grade == FAULT), None)
    if fault is not None:
        if fault.code == memory.code or memory.code not in SELF_CLEARING_FAULTS | SUSPICION_CODES:
            return memory
        # The same quarantine goes on for another cause, and counts once.
        return msgspec.structs.replace(_eject(memory, fault, settings, now_s), ejections=memory.ejections)
    suspected = memory.code in SUSPICION_CODES
    if suspected and any(sign.grade == SUSPICION for sign in judged.signs):
        return memory
    # The last engine of its role returns before its term: clients would have no engine in its place.
    if memory.until_s is not None and now_s < memory.until_s and not alone:
        return memory
    memory = msgspec.structs.replace(
        # Without the old signs: each must last again before it counts.
        memory,
        since_s=now_s,
        until_s=None,
        signs={},
        forgiven=judged.facts.failures_in_row,
    )
    # A suspected engine was perhaps only slow, so that it gets its whole load at once.
    if suspected or not settings.slow_start_s:
        return msgspec.structs.replace(memory, state=HEALTHY, code="", text="")
    return msgspec.structs.replace(memory, state=PROBATION, text=f"returning after: {memory.text}")


def _verdict(
    facts: EngineObservation,
    memory: EngineHealthMemory | None,
    panic: bool,
    settings: HealthDocument,
    now_s: float,
    newcomer_slow_start_s: float,
) -> HealthVerdict:
    if memory is None:
        text = f"not judged while it is {facts.lifecycle}"
        since_s = facts.since_s if facts.since_s is not None else now_s
        return HealthVerdict(
            engine_id=facts.engine_id, incarnation=facts.incarnation, state=HEALTHY, text=text, since_s=since_s
        )
    state, code, text, share = memory.state, memory.code, memory.text, 1.0
    since_s, slow_start_s = memory.since_s, 0.0
    if state == QUARANTINED:
        share = 0.0
        # In panic outliers keep their work: the engines are then not the cause.
        if panic and code in OUTLIER_CODES:
            state, share, text = SUSPECT, 1.0, f"not quarantined, too few engines are healthy: {text}"
    elif state == PROBATION:
        slow_start_s = settings.slow_start_s
    elif state == HEALTHY and facts.since_s is not None and now_s - facts.since_s < newcomer_slow_start_s:
        state, code, text = PROBATION, NEWCOMER, "it has just started to serve"
        since_s, slow_start_s = facts.since_s, newcomer_slow_start_s
    if slow_start_s:
        share = _in_slow_start(since_s, slow_start_s, settings, now_s)
    return HealthVerdict(
        engine_id=facts.engine_id,
        incarnation=facts.incarnation,
        state=state,
        code=code,
        text=text,
        since_s=since_s,
        until_s=memory.until_s,
        load_share=share,
        slow_start_s=slow_start_s,
    )


def _in_slow_start(from_s: float, slow_start_s: float, settings: HealthDocument, now_s: float) -> float:
    """Return an engine's share of the load in its slow start, which started at `from_s`."""
    done = max((now_s - from_s) / slow_start_s, 0.0)
    return min(1.0, settings.slow_start_from + (1.0 - settings.slow_start_from) * done)


def _differs(before: EngineHealthMemory | None, after: EngineHealthMemory) -> bool:
    if before is None:
        return after.state != HEALTHY
    return (before.state, before.code) != (after.state, after.code)


def _reasons(
    verdicts: Sequence[HealthVerdict],
    moved: dict[str, EngineHealthMemory],
    changed: Sequence[str],
    held_back: Mapping[str, str],
    panic: bool,
    settings: HealthDocument,
) -> tuple[Reason, ...]:
    """Return one reason per change and per withheld action, or that no action was needed."""
    of = {verdict.engine_id: verdict for verdict in verdicts}
    reasons = [
        Reason(
            of[name].code or "recovered",
            f"{name} is {'on ' * (of[name].state == PROBATION)}{of[name].state}"
            + (f": {of[name].text}" if of[name].text else ""),
        )
        for name in changed
    ]
    if panic:
        text = (
            f"fewer than {100 * settings.panic_share:.0f} % of engines are healthy (panic threshold): outliers "
            "are not quarantined"
        )
        reasons.append(Reason("panic", text))
    else:
        for code, why in (
            (OUTLIER_LIMIT, "max ejection is reached"),
            (LAST_OF_ROLE, "no other engine can do its work"),
        ):
            if names := sorted(name for name, held in held_back.items() if held == code):
                reasons.append(Reason(code, f"{', '.join(names)} would be quarantined, but {why}"))
    if not reasons:
        counts = Counter(memory.state for memory in moved.values())
        text = ", ".join(
            f"{counts[state]} {state}" for state in (HEALTHY, SUSPECT, QUARANTINED, PROBATION) if counts[state]
        )
        reasons.append(Reason("no_change", f"no change: {text}" if text else "no engine should be serving"))
    return tuple(reasons)
