"""State that engine health keeps between rounds: frozen, small, and stored as JSON with the job."""

from __future__ import annotations

import msgspec

from planning.engine_health.health_verdict import HEALTHY, HealthState
from planning.facts.fleet_facts import EngineObservation, known

MAX_FLAPS = 16
"""Losses and restarts of one engine that are remembered."""
UNDER_WAY_S = 2.0
"""Answers so soon after the counters moved may be part of what they have counted already."""


class EngineHealthMemory(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One engine's state, and since when which of its counters have not changed."""

    engine_id: str
    incarnation: int
    since_s: float
    """Since when it has been in its state."""
    state: HealthState = HEALTHY
    code: str = ""
    text: str = ""
    until_s: float | None = None
    ejections: int = 0
    """Quarantines in a row."""
    reachable: bool = True
    flaps: tuple[float, ...] = ()
    """Moments of losses and restarts, oldest first."""
    signs: dict[str, float] = {}
    """Code of each sign that shows → since when."""

    served: tuple[int, int] = (0, 0)
    """First tokens and later pieces that the gateway had seen."""
    served_s: float = 0.0
    """When they last grew, or when the engine last had no work."""
    given_s: float = 0.0
    """When the gateway last had no request there: requests that others sent before prove nothing about later ones."""
    first_token_s: float = 0.0
    """When the first of them last grew, or when it last had no prefill."""
    counters: tuple[float | None, float | None] = (None, None)
    """Prompt and generated tokens by its metrics."""
    counted_s: float = 0.0
    """When they last grew, or when its metrics last reported no work."""
    counters_moved_s: float = 0.0
    """When the counters last changed; an engine without work does not move them."""
    moved_s: float | None = None
    """When an answer or a counter last moved; None: never in this incarnation."""
    served_since_counted: int = 0
    """First tokens and pieces that the gateway saw since the counters last moved, up to the round before; those that
    were already on their way then do not count.
    """
    served_lately: int = 0
    """The same, of the last round alone: the newest reading may be older than they are."""
    answered_s: float | None = None
    """When the first of them came."""
    backwards_s: float | None = None
    """When a counter last ran backwards in one incarnation."""
    forgiven: int = 0
    """Failures in a row when it last returned; they no longer count."""
    gaps_total: int = 0
    gap_s: float | None = None
    """When its KV events last had a gap."""


class HealthMemory(msgspec.Struct, frozen=True):
    """A pool's engines by id. The first round begins with an empty one."""

    engines: dict[str, EngineHealthMemory] = {}


def first_memory(facts: EngineObservation, now_s: float) -> EngineHealthMemory:
    """Return the memory of an engine that is seen for the first time."""
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
    """Return the token counters of the metrics; None where they cannot be numbers."""
    return known(facts.prompt_tokens_total), known(facts.generated_tokens_total)


def _restarted(memory: EngineHealthMemory, facts: EngineObservation, now_s: float) -> EngineHealthMemory:
    """Return the memory of a new process that keeps its record of flapping and its quarantines."""
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
    """Return the memory with the answers that came from the engine in this round while its counters did not move."""
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
    """Return whether one of the metrics' counters grew, and whether one ran backwards."""
    grew = backwards = False
    for new, old in zip(counters_of(facts), memory.counters, strict=True):
        if new is not None and old is not None:
            grew = grew or new > old
            backwards = backwards or new < old
    return grew, backwards
