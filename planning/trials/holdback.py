"""Holdback: a simple rule takes over while the policy does worse, and returns control automatically.

Flapping is bounded: the policy must do worse for some time, each relapse soon after a return doubles the time to the
next attempt, and an attempt gives the policy only a small share.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from planning.documents.holdback_document import SliceDocument
from planning.facts.reason import Reason
from planning.trials.canary import guardrail_words
from planning.trials.comparison import ArmSlice, Comparison, GuardrailReading, compare

State = Literal["off", "slice", "fallback", "probing"]
MAX_DOUBLINGS = 4
CALM_FACTOR = 4
"""After this many cooldowns without a loss, the next cooldown is short again."""


class HoldbackMemory(msgspec.Struct, frozen=True):
    """State between evaluations. Times are in Unix seconds."""

    state: State = "off"
    since_s: float = 0.0
    losing_since_s: float | None = None
    doublings: int = 0
    """Consecutive losses soon after an attempt."""


class HoldbackFacts(msgspec.Struct, frozen=True):
    """Observations since the state began. `base` is the simple rule, `tried` the policy."""

    now_s: float
    whole: tuple[ArmSlice, ...]
    recent: tuple[ArmSlice, ...]
    frozen: bool = False
    """Whether an operator froze the pool: the serving side stays."""


class HoldbackPlan(msgspec.Struct, frozen=True):
    """The serving side."""

    share: float
    """Share of the sessions placed by the simple rule, 0..1."""
    changed: bool
    reasons: tuple[Reason, ...]
    comparison: Comparison


def plan_holdback(
    facts: HoldbackFacts, memory: HoldbackMemory, settings: SliceDocument
) -> tuple[HoldbackPlan, HoldbackMemory]:
    """Return the side that serves, and the memory."""
    comparison = compare(facts.whole, settings.guardrails)
    worse = {item.guard: item for item in (*comparison.worse, *compare(facts.recent, settings.guardrails).worse)}
    after, reason = _next(facts, memory, settings, comparison, tuple(worse.values()))
    reasons = (reason,) if reason is not None else ()
    return HoldbackPlan(share_of(after.state, settings), after.state != memory.state, reasons, comparison), after


def share_of(state: State, settings: SliceDocument) -> float:
    """Return the simple rule's share of the sessions in this state."""
    shares = {"off": 0.0, "slice": settings.share, "fallback": 1.0, "probing": 1.0 - settings.probe_share}
    return shares[state]


def cool_down_s(memory: HoldbackMemory, settings: SliceDocument) -> float:
    """Return how long the simple rule serves before the next attempt with the policy."""
    return float(settings.cool_down_s * 2**memory.doublings)


def _next(
    facts: HoldbackFacts,
    memory: HoldbackMemory,
    settings: SliceDocument,
    comparison: Comparison,
    worse: tuple[GuardrailReading, ...],
) -> tuple[HoldbackMemory, Reason | None]:
    now_s = facts.now_s
    if not settings.share:
        return (memory, None) if memory.state == "off" else (HoldbackMemory("off", now_s), _OFF)
    if memory.state == "off" or (not settings.fall_back and memory.state != "slice"):
        return HoldbackMemory("slice", now_s), Reason("slice", "The policy has a holdback")
    # An operator's freeze keeps even a losing policy: judging goes on once it is lifted.
    if facts.frozen:
        return memory, Reason("frozen", "The pool is frozen and keeps its current state")
    if memory.state == "fallback":
        return _in_fallback(now_s, memory, settings)
    return _judged(now_s, memory, settings, comparison, worse)


def _judged(
    now_s: float,
    memory: HoldbackMemory,
    settings: SliceDocument,
    comparison: Comparison,
    worse: tuple[GuardrailReading, ...],
) -> tuple[HoldbackMemory, Reason | None]:
    """Judge the policy while both arms have sessions."""
    losing_since_s = (memory.losing_since_s if memory.losing_since_s is not None else now_s) if worse else None
    memory = msgspec.structs.replace(memory, losing_since_s=losing_since_s)
    words = guardrail_words(worse[0], "the policy", "the simple rule") if worse else ""
    if losing_since_s is not None and settings.fall_back and now_s - losing_since_s >= settings.hold_s:
        return _lost(now_s, memory), Reason("policy_loses", words)
    if worse:
        return memory, Reason("losing", words)
    if memory.state == "probing":
        return _in_probe(now_s, memory, settings, comparison)
    calm_s = CALM_FACTOR * cool_down_s(memory, settings)
    if memory.doublings and now_s - memory.since_s >= calm_s:
        memory = msgspec.structs.replace(memory, doublings=0)
    return memory, None


def _lost(now_s: float, memory: HoldbackMemory) -> HoldbackMemory:
    # The first loss after a calm time does not double the wait.
    calm = memory.state == "slice" and memory.doublings == 0
    doublings = 0 if calm else min(memory.doublings + 1, MAX_DOUBLINGS)
    return HoldbackMemory("fallback", now_s, None, doublings)


def _in_fallback(now_s: float, memory: HoldbackMemory, settings: SliceDocument) -> tuple[HoldbackMemory, Reason]:
    left_s = memory.since_s + cool_down_s(memory, settings) - now_s
    if left_s > 0:
        return memory, Reason("fallback", f"The policy lost; probed again in {left_s:.0f} s")
    tried = msgspec.structs.replace(memory, state="probing", since_s=now_s, losing_since_s=None)
    return tried, Reason("try_again", f"The policy is probed on {settings.probe_share * 100:.3g} % of sessions")


def _in_probe(
    now_s: float, memory: HoldbackMemory, settings: SliceDocument, comparison: Comparison
) -> tuple[HoldbackMemory, Reason]:
    # A suspect result is not enough to return, although it is no loss.
    if now_s - memory.since_s < settings.probe_s or not comparison.fine:
        return memory, Reason("probing", "The policy is probed again on a share of sessions")
    # One more than before, so that a loss soon after the return waits longer.
    back = HoldbackMemory("slice", now_s, None, min(memory.doublings + 1, MAX_DOUBLINGS))
    return back, Reason("policy_back", "The policy did as well as the simple rule and serves again")


_OFF = Reason("off", "The policy has no holdback")
