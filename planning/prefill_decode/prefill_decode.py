"""Keep the numbers of prefill and decode engines in proportion to their loads (Mooncake §5.1).

Driving the imbalance factor straight to 1 would oscillate. Therefore engines change roles only after the factor has
been outside a band for some time, in bounded steps, and never so far that the factor would leave the band on the other
side. Reversing the last change requires a larger imbalance than continuing.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from planning.documents.ratio_document import RatioDocument
from planning.facts.fleet_facts import ACTIVE, DRAINING, STARTING, EngineObservation, PoolFacts, Role, RoleLoad
from planning.facts.reason import Reason
from planning.prefill_decode.imbalance import Imbalance, imbalance_of
from planning.prefill_decode.ratio_plan import RatioMemory, RatioPlan, RoleChange
from planning.prefill_decode.role_changes import DECODE, PREFILL, counts_of
from routing.values.counted import count

COMFORTABLE = 0.8
"""Maximum load of the giving side if a role change makes it the busier one."""


def plan_ratio(
    facts: PoolFacts,
    loads: Sequence[RoleLoad],
    memory: RatioMemory,
    settings: RatioDocument,
    *,
    override_prefill: int | None = None,
) -> tuple[RatioPlan, RatioMemory]:
    """Return the role changes of this round, and the memory for the next one.

    `override_prefill`: an operator's number of prefill engines among the present ones, limited to the bounds.
    """
    now_s = facts.now_s
    counts = counts_of(facts.engines)
    seen = imbalance_of(loads, now_s, settings.window_s, settings.min_samples)
    if override_prefill is not None:
        step, reasons = _by_hand(counts, override_prefill, settings)
    else:
        memory, step, reasons = _step(facts, counts, seen, memory, settings)
    # One step at a time: the loads of changing engines are not settled.
    if step and _is_changing(facts.engines):
        step, reasons = 0, [Reason("changing", "an engine is still draining or starting")]
    role_changes = _role_changes(facts.engines, step)
    if role_changes:
        to = role_changes[0].after
        turned = memory.changed_to not in ("", to)
        memory = msgspec.structs.replace(
            memory,
            changed_s=now_s,
            changed_to=to,
            turns=memory.turns + turned,
            out_since_s=None,
            out_role="",
        )
    signed = len(role_changes) if step > 0 else -len(role_changes)
    plan = RatioPlan(
        pool_id=facts.pool_id,
        at_s=now_s,
        role_changes=role_changes,
        imbalance=None if seen is None else seen.factor,
        prefill_load=None if seen is None else seen.prefill_load,
        decode_load=None if seen is None else seen.decode_load,
        prefill=counts[PREFILL],
        decode=counts[DECODE],
        target_prefill=counts[PREFILL] - signed,
        target_decode=counts[DECODE] + signed,
        reasons=tuple(reasons),
    )
    return plan, memory


def _by_hand(counts: dict[Role, int], prefill: int, settings: RatioDocument) -> tuple[int, list[Reason]]:
    """Return how many engines become decode engines (negative: prefill) for an operator's number."""
    total = counts[PREFILL] + counts[DECODE]
    wanted = max(min(prefill, total - settings.min_decode), min(settings.min_prefill, total))
    step = counts[PREFILL] - wanted
    text = f"an operator set {prefill} of {count(total, 'engine')} to prefill"
    return step, [Reason("override", text if wanted == prefill else f"{text}; the bounds make it {wanted}")]


def _step(
    facts: PoolFacts,
    counts: dict[Role, int],
    seen: Imbalance | None,
    memory: RatioMemory,
    settings: RatioDocument,
) -> tuple[RatioMemory, int, list[Reason]]:
    """Return the memory, how many engines become decode engines (negative: prefill), and the reasons."""
    now_s = facts.now_s
    if not counts[PREFILL] or not counts[DECODE]:
        return RatioMemory(), 0, [Reason("no_roles", "the pool lacks engines of both roles")]
    if seen is None:
        return memory, 0, [Reason("no_facts", f"fewer than {settings.min_samples} load samples of a role")]
    to = DECODE if seen.factor > 1.0 else PREFILL
    turning = memory.changed_to not in ("", to)
    # Reversing the last change takes more than continuing, so that the ratio does not oscillate.
    limit = 1.0 + settings.band + (settings.hysteresis if turning else 0.0)
    # Twice and half are equally far from balance.
    out = max(seen.factor, 1.0 / seen.factor)
    words = f"f_im = {seen.factor:.2f} (prefill {seen.prefill_load:.2f}, decode {seen.decode_load:.2f})"
    if out <= limit:
        memory = msgspec.structs.replace(memory, out_since_s=None, out_role="")
        return memory, 0, [Reason("balanced", f"{words} is within the tolerance of {limit:.2f}")]
    if memory.out_role != to or memory.out_since_s is None:
        memory = msgspec.structs.replace(memory, out_since_s=now_s, out_role=to)
    waits = _waits(memory, words, settings, now_s)
    size = 0 if waits else _size(counts, seen, to, settings)
    if not size:
        return (
            memory,
            0,
            [waits or Reason("bound", f"{words}, but a role change would overshoot or leave too few engines")],
        )
    return memory, size if to == DECODE else -size, [Reason(f"more_{to}", words)]


def _waits(memory: RatioMemory, words: str, settings: RatioDocument, now_s: float) -> Reason | None:
    """Return why a role change is too early, or None."""
    left_s = settings.hold_s - (now_s - memory.out_since_s) if memory.out_since_s is not None else settings.hold_s
    pause_s = settings.cool_down_s - (now_s - memory.changed_s) if memory.changed_s is not None else 0.0
    if left_s > 0:
        return Reason("not_persistent", f"{words} must last another {left_s:.0f} s")
    if pause_s > 0:
        return Reason("cool_down", f"{words}, but the cooldown lasts another {pause_s:.0f} s")
    return None


def _size(counts: dict[Role, int], seen: Imbalance, to: Role, settings: RatioDocument) -> int:
    """Return how many role changes bring the factor closest to 1 without overloading the giving side."""
    giver = PREFILL if to == DECODE else DECODE
    least = settings.min_prefill if giver == PREFILL else settings.min_decode
    best, size = max(seen.factor, 1.0 / seen.factor), 0
    for step in range(1, min(settings.max_step, counts[giver] - least) + 1):
        change = step if to == DECODE else -step
        decode_load = seen.decode_load * counts[DECODE] / (counts[DECODE] + change)
        prefill_load = seen.prefill_load * counts[PREFILL] / (counts[PREFILL] - change)
        factor = (decode_load + 1.0) / (prefill_load + 1.0)
        out = max(factor, 1.0 / factor)
        crossed = (factor > 1.0) != (seen.factor > 1.0)
        giver_load = prefill_load if giver == PREFILL else decode_load
        # A role change must not make the giving side the busy one.
        if crossed and (out > 1.0 + settings.band or giver_load > COMFORTABLE):
            continue
        if out < best:
            best, size = out, step
    return size


def _is_changing(engines: Sequence[EngineObservation]) -> bool:
    return any(engine.lifecycle in (STARTING, DRAINING) and engine.role in (PREFILL, DECODE) for engine in engines)


def _role_changes(engines: Sequence[EngineObservation], step: int) -> tuple[RoleChange, ...]:
    """Return the role changes, for the engines with the least remaining work."""
    if not step:
        return ()
    before, after = (PREFILL, DECODE) if step > 0 else (DECODE, PREFILL)
    able = sorted(
        (engine for engine in engines if engine.role == before and engine.lifecycle == ACTIVE),
        # Rounded, so that differences without meaning do not decide.
        key=lambda engine: (engine.dispatched, round(engine.in_flight_s, 1), engine.engine_id),
    )
    return tuple(RoleChange(item.engine_id, before, after) for item in able[: abs(step)])
