"""Signs of unhealthy engines, each derived from this round's facts and the memory of earlier rounds.

Grades: a *fault* means that the engine does not answer or reports that it does not serve. A lasting fault always leads
to quarantine. A *suspicion* means that its requests make no progress, which also happens while an engine compiles,
builds a grammar, or encodes images: it gets no new work while others make progress. An *outlier* is worse than other
engines; the number of outliers quarantined at once is limited. A *doubt* only makes the engine suspect: it still
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
"""Outlier codes that can lead to quarantine."""
SELF_CLEARING_FAULTS = frozenset({UNREACHABLE, PAUSED})
"""Faults that end when the engine reports so. Their quarantine has no fixed duration."""
SUSPICION_CODES = frozenset({NO_PROGRESS, NOT_STARTING, LYING})
"""Suspicions that end with any progress. Their quarantine has no fixed duration and no slow start, and prolongs no
other.
"""

REJECTS = 0.9
"""Share of rejected requests from which an engine counts as useless. One client's bad requests among others stay
below it.
"""
FULL = 0.85
"""Share of the KV memory above which a long prompt can fail to fit."""
_INSTANT_S = 1e-6
ANSWERS = 5
"""Number of answer pieces that proves that unchanged counters are wrong."""
FROZEN_S = 3.0
"""Unchanged counters are wrong if a reading is this much newer than the first of those pieces."""
UNKNOWN_PREFILL = 3.0
"""Multiple of the limit for an engine with unknown work, because others sent it or its metrics are frozen."""


class Sign(msgspec.Struct, frozen=True):
    """One sign that shows in this round."""

    code: str
    grade: str
    text: str
    hold_s: float = 0.0
    """How long the sign must last before it takes effect."""
    still_since_s: float = 0.0
    """For a suspicion: when the engine's last progress was."""


def signs_of(
    facts: EngineObservation,
    memory: EngineHealthMemory,
    peers: Peers,
    settings: HealthDocument,
    tpot_slo_s: float,
    now_s: float,
) -> list[Sign]:
    """Return the current signs, most severe first."""
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
    """Return whether the engine's metrics are recent enough to judge it."""
    return facts.report_s is not None and now_s - facts.report_s <= settings.stale_s


def are_frozen(facts: EngineObservation, memory: EngineHealthMemory) -> bool:
    """Return whether the engine's metrics are unchanged although it sent answers, so that they prove nothing."""
    counts = any(counter is not None for counter in memory.counters)
    if not counts or memory.answered_s is None or facts.report_s is None:
        return False
    return memory.served_since_counted >= ANSWERS and facts.report_s - memory.answered_s >= FROZEN_S


def _silence(
    facts: EngineObservation, memory: EngineHealthMemory, settings: HealthDocument, now_s: float
) -> Iterator[Sign]:
    """Yield signs of failed probes, unless answers received by the gateway contradict them."""
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
    """Yield a sign if requests in flight make no progress."""
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
    """Yield a sign if the engine rejects requests that its peers accept.

    Rejections by all are not the engine's fault.
    """
    share, elsewhere = known(facts.rejected_share), peers.rejected_share
    if share is None or elsewhere is None or facts.rejected_samples < settings.failures:
        return
    if share >= REJECTS and share >= settings.slow_factor * elsewhere:
        text = f"it rejected {100 * share:.0f} % of its requests (4xx), other engines {100 * elsewhere:.0f} %"
        yield Sign(REJECTING, OUTLIER, text)


def _crawling(facts: EngineObservation, peers: Peers, settings: HealthDocument, tpot_slo_s: float) -> Iterator[Sign]:
    """Yield a sign if the engine is slow compared with its estimate and its peers. Without peers it is only a doubt.

    A mixed engine with much prefill work sends tokens slowly, so slow tokens count only if its prefills are also slow.
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
    """Return how long slowness must last: the slower the engine, the shorter, down to a third of the time."""
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
    """Return the first impossible report in a sentence, empty if there is none."""
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
    """Return the hold time of a sign: 0 once `elapsed_s` has reached the limit, else the limit."""
    return 0.0 if elapsed_s >= limit_s else limit_s
