"""The signs that an engine is sick, each read from this round's facts and the memory of earlier rounds.

Grades: a *fault* means that nothing answers there, or that the engine itself reports that it does not serve. It always
leads to quarantine once it has lasted. A *suspicion* means that requests there make no progress, as also while an
engine compiles, builds a grammar or encodes images: it gets no new work while others move. An *outlier* is worse than
the rest; how many of those may be taken out at once is bounded. A *doubt* makes a suspect and no more: the engine still
serves. No sign ends a running request (docs/decisions/0057-slow-is-not-dead.md).
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from planning.documents.health_document import HealthDocument
from planning.engine_health.health_memory import EngineHealthMemory
from planning.facts.fleet_facts import EngineObservation, known
from planning.facts.peer_speeds import Peers
from routing.values.counted import count

FAULT, SUSPICION, OUTLIER, DOUBT = "fault", "suspicion", "outlier", "doubt"

UNREACHABLE = "unreachable"
PAUSED = "paused"
NOT_STARTING = "not_starting"
NO_PROGRESS = "no_progress"
LYING = "lying"
FAILURES = "failures"
CRAWLING = "crawling"
FLAPPING = "flapping"
REJECTING = "rejecting"
BOTTLENECK = "decode_bottleneck"
FROZEN_METRICS = "frozen_metrics"
GARBAGE_METRICS = "garbage_metrics"
EVENT_GAPS = "event_gaps"

OUTLIER_CODES = frozenset({FAILURES, CRAWLING, FLAPPING, REJECTING})
"""Codes of being worse than the rest that can lead to quarantine."""
SELF_CLEARING_FAULTS = frozenset({UNREACHABLE, PAUSED})
"""Faults that end when the engine reports so: their quarantine needs no term."""
SUSPICION_CODES = frozenset({NO_PROGRESS, NOT_STARTING, LYING})
"""Suspicions end when anything moves: their quarantine has no term and no slow start, and prolongs no other."""

REJECTS = 0.9
"""Share of rejected requests from which an engine counts as useless: one client's bad requests among others stay below.
"""
FULL = 0.85
"""Share of the KV memory from which a long prompt may not fit."""
_INSTANT_S = 1e-6
ANSWERS = 5
"""This many pieces of answers prove that counters which do not move are wrong."""
FROZEN_S = 3.0
"""Counters that do not move are wrong once a reading is this much younger than the first of those pieces."""
UNKNOWN_PREFILL = 3.0
"""Multiple of the limit for an engine whose work is unknown: others sent it, or its metrics are frozen."""


class Sign(msgspec.Struct, frozen=True):
    """One sign that shows in this round."""

    code: str
    grade: str
    text: str
    hold_s: float = 0.0
    """How long it must show before it takes effect."""
    still_since_s: float = 0.0
    """Of a suspicion: since when nothing has come from the engine."""


def signs_of(
    facts: EngineObservation,
    memory: EngineHealthMemory,
    peers: Peers,
    settings: HealthDocument,
    tpot_slo_s: float,
    now_s: float,
) -> list[Sign]:
    """Return the signs that show, the gravest first."""
    signs = [
        *_silence(facts, memory, settings, now_s),
        *_standstill(facts, memory, settings, now_s),
        *_failing(facts, memory, settings, now_s),
        *_rejecting(facts, peers, settings),
        *_crawling(facts, peers, settings, tpot_slo_s),
        *_doubts(facts, memory, settings, now_s),
    ]
    order = {FAULT: 0, SUSPICION: 1, OUTLIER: 2, DOUBT: 3}
    return sorted(signs, key=lambda sign: order[sign.grade])


def is_fresh(facts: EngineObservation, settings: HealthDocument, now_s: float) -> bool:
    """Return whether the engine's metrics are new enough to be judged."""
    return facts.report_s is not None and now_s - facts.report_s <= settings.stale_s


def are_frozen(facts: EngineObservation, memory: EngineHealthMemory) -> bool:
    """Return whether the engine's metrics do not change although answers came from it, so that they prove nothing."""
    counts = any(counter is not None for counter in memory.counters)
    if not counts or memory.answered_s is None or facts.report_s is None:
        return False
    return memory.served_since_counted >= ANSWERS and facts.report_s - memory.answered_s >= FROZEN_S


def _silence(
    facts: EngineObservation, memory: EngineHealthMemory, settings: HealthDocument, now_s: float
) -> Iterator[Sign]:
    """Yield the signs of failed probes; answers that the gateway itself saw contradict them."""
    if not facts.reachable:
        since_s = facts.unreachable_since_s if facts.unreachable_since_s is not None else now_s
        silent_s = max(now_s - since_s, 0.0)
        served = facts.dispatched > 0 and since_s < memory.served_s and now_s - memory.served_s < settings.silent_s
        # Answers that the gateway saw itself contradict a probe without one.
        grade = DOUBT if served else FAULT
        yield Sign(UNREACHABLE, grade, f"no probe answered for {silent_s:.1f} s", _left(settings.silent_s, silent_s))
    elif facts.paused:
        yield Sign(PAUSED, FAULT, f"the engine answers but reports that it is {facts.paused}")


def _standstill(
    facts: EngineObservation, memory: EngineHealthMemory, settings: HealthDocument, now_s: float
) -> Iterator[Sign]:
    """Yield a sign where requests are in flight and they make no progress."""
    limit_s = settings.stall_s + 2 * (known(facts.longest_prefill_s) or 0.0)
    # Of requests that others sent, the prefill's length is unknown.
    if not facts.dispatched:
        limit_s = max(limit_s, UNKNOWN_PREFILL * settings.stall_s)
    judged = facts.reachable and facts.readable and is_fresh(facts, settings, now_s)
    frozen = are_frozen(facts, memory)
    claims = judged and not frozen and any(counter is not None for counter in memory.counters)
    counted_for_s = now_s - memory.counted_s
    served_for_s = now_s - (max(memory.served_s, memory.given_s) if facts.dispatched else memory.served_s)
    busy = facts.dispatched > 0 or (judged and ((facts.running or 0) > 0 or (facts.waiting or 0) > 0))
    if not busy or served_for_s < limit_s:
        return
    code, text = NO_PROGRESS, ""
    if claims and facts.running == 0 and (facts.waiting or 0) > 0 and counted_for_s >= limit_s:
        waiting = count(facts.waiting or 0, "waiting request")
        code, text = NOT_STARTING, f"it has {waiting}, but none has run for {counted_for_s:.0f} s"
    elif claims and counted_for_s >= limit_s:
        ones = _run(facts.running) if facts.running else f"{_requests(facts.dispatched)} had no answer"
        text = f"{ones}, and no token was counted for {counted_for_s:.0f} s"
    elif facts.streaming > 0:
        streams = count(facts.streaming, "stream has", "streams have")
        text = f"{streams} produced nothing for {served_for_s:.0f} s"
        if claims:
            code, text = LYING, f"{text}, although its metrics show progress"
    elif frozen and facts.dispatched > 0 and served_for_s >= UNKNOWN_PREFILL * limit_s:
        text = f"{_requests(facts.dispatched)} produced nothing for {served_for_s:.0f} s, and its metrics do not change"
    if text:
        yield Sign(code, SUSPICION, text, still_since_s=now_s - served_for_s)


def _failing(
    facts: EngineObservation, memory: EngineHealthMemory, settings: HealthDocument, now_s: float
) -> Iterator[Sign]:
    failures = facts.failures_in_row - memory.forgiven
    if failures >= settings.failures:
        yield Sign(FAILURES, OUTLIER, f"{count(failures, 'request')} in a row failed")
    flaps = [moment for moment in memory.flaps if now_s - moment <= settings.flap_window_s]
    if len(flaps) >= settings.flaps:
        text = f"it was lost or restarted {count(len(flaps), 'time')} within {settings.flap_window_s:.0f} s"
        yield Sign(FLAPPING, OUTLIER, text)


def _rejecting(facts: EngineObservation, peers: Peers, settings: HealthDocument) -> Iterator[Sign]:
    """Yield a sign where the engine rejects what its peers accept; a rejection by all is not the engine's fault."""
    share, elsewhere = known(facts.rejected_share), peers.rejected_share
    if share is None or elsewhere is None or facts.rejected_samples < settings.failures:
        return
    if share >= REJECTS and share >= settings.slow_factor * elsewhere:
        text = f"it rejected {100 * share:.0f} % of its requests (4xx), other engines {100 * elsewhere:.0f} %"
        yield Sign(REJECTING, OUTLIER, text)


def _crawling(facts: EngineObservation, peers: Peers, settings: HealthDocument, tpot_slo_s: float) -> Iterator[Sign]:
    """Yield a sign where the engine is slow by its estimate and by its peers; without peers it is a doubt only.

    Tokens come slowly from a mixed engine that prefills much, so they count against it only where its prefills are slow
    too.
    """
    factor, slowness, tpot_s = settings.slow_factor, known(facts.slowness), known(facts.tpot_s)
    judged = slowness is not None and facts.slowness_samples >= settings.slow_samples
    if judged and slowness is not None and slowness >= factor:
        text = f"prefills take {slowness:.1f} times their estimate"
        if peers.slowness is None:
            yield Sign(CRAWLING, DOUBT, text)
        elif slowness >= factor * peers.slowness:
            yield Sign(
                CRAWLING,
                OUTLIER,
                f"{text}, on other engines {peers.slowness:.1f} times",
                _patience_s(settings, slowness),
            )
    elif (
        tpot_s is not None
        and peers.tpot_s is not None
        and facts.tpot_samples >= settings.slow_samples
        # Tokens within the objective are no fault, however fast the peers are.
        and tpot_s >= max(factor * peers.tpot_s, tpot_slo_s)
    ):
        text = f"tokens are {1000 * tpot_s:.0f} ms apart, on other engines {1000 * peers.tpot_s:.0f} ms"
        slow_too = facts.role == "decode" or (judged and slowness is not None and slowness >= factor / 2)
        hold_s = _patience_s(settings, tpot_s / max(peers.tpot_s, _INSTANT_S))
        yield Sign(CRAWLING, OUTLIER, text, hold_s) if slow_too else Sign(CRAWLING, DOUBT, text)


def _patience_s(settings: HealthDocument, times: float) -> float:
    """Return how long a crawl must show: the slower the engine, the shorter, down to a third of the time."""
    return max(settings.slow_s / 3, settings.slow_s * settings.slow_factor / max(times, settings.slow_factor))


def _doubts(
    facts: EngineObservation, memory: EngineHealthMemory, settings: HealthDocument, now_s: float
) -> Iterator[Sign]:
    """Yield signs that make an engine's reports less credible although it serves."""
    stalled_s = now_s - memory.first_token_s
    limit_s = settings.bottleneck_s + (known(facts.longest_prefill_s) or 0.0)
    usage = known(facts.kv_usage)
    full = usage is None or usage >= FULL
    if full and facts.prefilling > 0 and stalled_s >= limit_s and memory.served_s > memory.first_token_s:
        prefills = count(facts.prefilling, "prefill has", "prefills have")
        yield Sign(BOTTLENECK, DOUBT, f"it decodes, but {prefills} made no progress for {stalled_s:.1f} s")
    if facts.reachable and facts.report_s is not None and not facts.readable:
        yield Sign(GARBAGE_METRICS, DOUBT, "it answers, but its metrics are unreadable")
    elif wrong := _impossible(facts, memory, settings, now_s):
        yield Sign(GARBAGE_METRICS, DOUBT, wrong)
    elif are_frozen(facts, memory):
        text = f"its counters have not changed for {now_s - memory.counters_moved_s:.0f} s while it answered requests"
        yield Sign(FROZEN_METRICS, DOUBT, text)
    if memory.gap_s is not None and now_s - memory.gap_s <= settings.flap_window_s:
        yield Sign(EVENT_GAPS, DOUBT, "its KV events had a gap, so its prefix index is not exact")


def _impossible(facts: EngineObservation, memory: EngineHealthMemory, settings: HealthDocument, now_s: float) -> str:
    """Return the first report that no sound engine makes, as a sentence; empty where there is none."""
    named = {
        "running": facts.running,
        "waiting": facts.waiting,
        "KV usage": facts.kv_usage,
        "prompt tokens": facts.prompt_tokens_total,
        "generated tokens": facts.generated_tokens_total,
    }
    for name, value in named.items():
        if value is not None and known(value) is None:
            return f"its metrics report {name} = {value}"
    # Slightly above 1 is a full memory, rounded.
    if (known(facts.kv_usage) or 0.0) > 1.01:
        return f"its metrics report KV usage = {facts.kv_usage}"
    if memory.backwards_s is not None and now_s - memory.backwards_s <= settings.flap_window_s:
        return "its counters decreased without a restart"
    return ""


def _requests(number: int) -> str:
    return count(number, "request has", "requests have")


def _run(number: int) -> str:
    return count(number, "request runs", "requests run")


def _left(limit_s: float, elapsed_s: float) -> float:
    """Return a hold that is over once `elapsed_s` has reached the limit; the sign's own clock began earlier."""
    return 0.0 if elapsed_s >= limit_s else limit_s
