"""When an automation can make its next change: the remaining pauses and cool-downs, in words.

Pure: takes the automation's memory, its settings, and the current time; returns a sentence.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from controlplane.platform.format import span
from planning.documents.automation_document import AutomationPolicy
from planning.documents.ratio_document import RatioDocument
from planning.documents.rebalance_document import RebalanceDocument
from planning.documents.scaling_document import ScalingDocument

ANY_TIME = "At any time."


def next_change(
    job: str, settings: AutomationPolicy, plan: Mapping[str, Any], memory: Mapping[str, Any], now_s: float
) -> str:
    """Return when the automation can make its next change if it has a reason to; `now_s` is in Unix seconds."""
    if job == "scaling":
        return _scaling(settings.scaling, plan, memory, now_s)
    if job == "prefill_decode":
        return _ratio(settings.ratio, memory, now_s)
    if job == "rebalance":
        return _rebalance(settings.rebalance, memory, now_s)
    return _health(plan, now_s)


def _scaling(settings: ScalingDocument, plan: Mapping[str, Any], memory: Mapping[str, Any], now_s: float) -> str:
    added_s = _known(memory, "added_s")
    up_s = 0.0 if added_s is None else added_s + settings.warm_up_s + settings.up_cool_down_s - now_s
    adds = "Adding: at any time" if up_s <= 0 else f"Adding: in {span(up_s)}"
    most, least = _known(plan, "adds_above"), _known(plan, "drains_below")
    if most is not None and least is not None:
        adds = f"Demand between {least:.1f} and {most:.1f} engines changes nothing. {adds}"
    calm_s = _known(memory, "calm_since_s")
    if calm_s is None:
        return f"{adds}. Draining: after {span(settings.down_cool_down_s)} of low load."
    last_s = max(item for item in (calm_s, added_s, _known(memory, "drained_s")) if item is not None)
    down_s = last_s + settings.down_cool_down_s - now_s
    drains = "at any time" if down_s <= 0 else f"in {span(down_s)} if the load stays low"
    return f"{adds}. Draining: {drains}."


def _ratio(settings: RatioDocument, memory: Mapping[str, Any], now_s: float) -> str:
    changed_s, out_s = _known(memory, "changed_s"), _known(memory, "out_since_s")
    pause_s = 0.0 if changed_s is None else changed_s + settings.cool_down_s - now_s
    hold_s = settings.hold_s if out_s is None else out_s + settings.hold_s - now_s
    if pause_s > max(hold_s, 0.0):
        return f"Role change: in {span(pause_s)}, after the cooldown."
    if out_s is None:
        return f"Role change: once f_im is out of tolerance for {span(hold_s)}."
    return ANY_TIME if hold_s <= 0 else f"Role change: in {span(hold_s)} if the imbalance lasts."


def _rebalance(settings: RebalanceDocument, memory: Mapping[str, Any], now_s: float) -> str:
    widened = memory.get("widened") or {}
    if not isinstance(widened, Mapping) or not widened:
        return ANY_TIME
    ends = [item["since_s"] + settings.cool_down_s - now_s for item in widened.values() if "since_s" in item]
    left_s = min(ends, default=0.0)
    narrow = "at any time" if left_s <= 0 else f"in {span(left_s)} at the earliest"
    return f"Widening: at any time. Narrowing: {narrow}."


def _health(plan: Mapping[str, Any], now_s: float) -> str:
    ends = [
        item["until_s"] - now_s
        for item in plan.get("verdicts", ())
        if item.get("state") == "quarantined" and isinstance(item.get("until_s"), int | float)
    ]
    left_s = min((end for end in ends if end > 0), default=0.0)
    return f"{ANY_TIME} The next quarantine may end in {span(left_s)}." if left_s else ANY_TIME


def _known(memory: Mapping[str, Any], name: str) -> float | None:
    value = memory.get(name)
    return float(value) if isinstance(value, int | float) else None
