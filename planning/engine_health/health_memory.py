"""State of engine health between rounds: immutable, small, and stored as JSON with the job."""

from __future__ import annotations

import msgspec

from planning.engine_health.health_verdict import HEALTHY, HealthState
from planning.facts.fleet_facts import EngineObservation, known

MAX_FLAPS = 16
"""Maximum remembered losses and restarts of one engine."""
UNDER_WAY_S = 2.0
"""Answers this soon after the counters changed can already be included in them."""


class EngineHealthMemory(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One engine's state, and how long each of its counters has been unchanged."""

    engine_id: str
    incarnation: int
    since_s: float
    """When it entered its state."""
    state: HealthState = HEALTHY
    code: str = ""
    text: str = ""
    until_s: float | None = None
    ejections: int = 0
    """Number of consecutive quarantines."""
    reachable: bool = True
    flaps: tuple[float, ...] = ()
    """Times of losses and restarts, oldest first."""
    signs: dict[str, float] = {}
    """Code of each current sign → when it began."""

    served: tuple[int, int] = (0, 0)
    """First tokens and later pieces that the gateway has received."""
    served_s: float = 0.0
    """When they last increased, or when the engine last had no work."""
    given_s: float = 0.0
    """When the gateway last had no request on the engine: earlier requests of other senders prove nothing about
    later ones.
    """
    first_token_s: float = 0.0
    """When the first tokens last increased, or when the engine last had no prefill."""
    counters: tuple[float | None, float | None] = (None, None)
    """Prompt and generated tokens in its metrics."""
    counted_s: float = 0.0
    """When they last increased, or when its metrics last reported no work."""
    counters_moved_s: float = 0.0
    """When the counters last changed. Without work they do not change."""
    moved_s: float | None = None
    """When an answer or a counter last progressed, None if never in this incarnation."""
    served_since_counted: int = 0
    """First tokens and pieces that the gateway received since the counters last changed, up to the previous round.
    Those already in transit at the change are not counted.
    """
    served_lately: int = 0
    """The same for the last round alone, because the latest reading can be older than they are."""
    answered_s: float | None = None
    """When the first of them arrived."""
    backwards_s: float | None = None
    """When a counter last decreased within one incarnation."""
    forgiven: int = 0
    """Consecutive failures before its last return, which no longer count."""
    gaps_total: int = 0
    gap_s: float | None = None
    """When its KV events last had a gap."""


class HealthMemory(msgspec.Struct, frozen=True):
    """Memory of a pool's engines by id. The first round starts with an empty one."""

    engines: dict[str, EngineHealthMemory] = {}


def first_memory(facts: EngineObservation, now_s: float) -> EngineHealthMemory:
    """Return the initial memory of a new engine."""
    return EngineHealthMemory(
        engine_id=facts.engine_id,
        incarnation=facts.incarnation,
        since_s=now_s,
        reachable=facts.reachable,
        served=(facts.first_tokens_total, facts.chunks_total),
        served_s=now_s,
        given_s=now_s,
        first_token_s=now_s,
        counters=counters_of(facts),
        counted_s=now_s,
        counters_moved_s=now_s,
        gaps_total=facts.event_gaps_total,
    )


def remembered(memory: EngineHealthMemory, facts: EngineObservation, now_s: float) -> EngineHealthMemory:
    """Return the memory updated with this round's counters."""
    if facts.incarnation != memory.incarnation:
        memory = _restarted(memory, facts, now_s)
    elif memory.reachable and not facts.reachable:
        memory = msgspec.structs.replace(memory, flaps=(*memory.flaps, now_s)[-MAX_FLAPS:])
    served = (facts.first_tokens_total, facts.chunks_total)
    grown = sum(max(new - old, 0) for new, old in zip(served, memory.served, strict=True))
    grew, backwards = _counters_grew(memory, facts)
    counted = grew or (facts.running == 0 and facts.waiting == 0 and not facts.dispatched)
    memory = _unanswered(memory, grown, now_s, moved=grew or backwards)
    return msgspec.structs.replace(
        memory,
        reachable=facts.reachable,
        served=served,
        served_s=now_s if grown or not _has_work(facts) else memory.served_s,
        given_s=now_s if not facts.dispatched else memory.given_s,
        first_token_s=now_s if served[0] > memory.served[0] or not facts.prefilling else memory.first_token_s,
        counters=counters_of(facts) if facts.readable else memory.counters,
        counted_s=now_s if counted else memory.counted_s,
        moved_s=now_s if grown or grew else memory.moved_s,
        backwards_s=now_s if backwards else memory.backwards_s,
        # A lower number: a request has succeeded since.
        forgiven=memory.forgiven if facts.failures_in_row >= memory.forgiven else 0,
        gaps_total=facts.event_gaps_total,
        gap_s=now_s if facts.event_gaps_total > memory.gaps_total else memory.gap_s,
    )


def counters_of(facts: EngineObservation) -> tuple[float | None, float | None]:
    """Return the token counters in the metrics, None if they are not valid numbers."""
    return known(facts.prompt_tokens_total), known(facts.generated_tokens_total)


def _restarted(memory: EngineHealthMemory, facts: EngineObservation, now_s: float) -> EngineHealthMemory:
    """Return the memory of a restarted process, which keeps its flaps and quarantines."""
    return msgspec.structs.replace(
        first_memory(facts, now_s),
        since_s=memory.since_s,
        state=memory.state,
        code=memory.code,
        text=memory.text,
        until_s=memory.until_s,
        ejections=memory.ejections,
        flaps=(*memory.flaps, now_s)[-MAX_FLAPS:],
    )


def _unanswered(memory: EngineHealthMemory, grown: int, now_s: float, *, moved: bool) -> EngineHealthMemory:
    """Return the memory updated with the answers received in this round while the counters did not change."""
    if moved:
        return msgspec.structs.replace(
            memory, counters_moved_s=now_s, served_since_counted=0, served_lately=0, answered_s=None
        )
    # Answers that come sooner may be part of the counters already.
    lately = grown if now_s - memory.counters_moved_s >= UNDER_WAY_S else 0
    return msgspec.structs.replace(
        memory,
        served_since_counted=memory.served_since_counted + memory.served_lately,
        served_lately=lately,
        answered_s=now_s if memory.answered_s is None and lately else memory.answered_s,
    )


def _has_work(facts: EngineObservation) -> bool:
    return facts.dispatched > 0 or (facts.running or 0) > 0 or (facts.waiting or 0) > 0


def _counters_grew(memory: EngineHealthMemory, facts: EngineObservation) -> tuple[bool, bool]:
    """Return whether a counter in the metrics increased, and whether one decreased."""
    grew = backwards = False
    for new, old in zip(counters_of(facts), memory.counters, strict=True):
        if new is not None and old is not None:
            grew = grew or new > old
            backwards = backwards or new < old
    return grew, backwards
