"""The engine actions listed on the Automation page, with the countdown of engines that drain for an action."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from controlplane.automation.models.engine_action import OPEN_STATES, ActionState, EngineAction
from controlplane.fleet.drain_progress import DrainProgress
from controlplane.fleet.models.pool import ActuatorKind
from controlplane.platform.format import count, moment, roughly, sentence, span
from gateway.contracts.fleet_sample import EngineSample
from web.automation.words import ACTION_STATES, action_words

SHOWN_OPEN = 100
SHOWN_ENDED = 12


def action_row(
    action: EngineAction, drains: Mapping[str, DrainProgress], seen: Mapping[str, EngineSample], now: datetime
) -> dict[str, Any]:
    """Return what the list shows about an action; `drains` and `seen` are keyed by engine id."""
    word, shape = ACTION_STATES[ActionState(action.state)]
    is_open = action.state in OPEN_STATES
    by_hand = action.pool.actuator == ActuatorKind.MANUAL
    asks = by_hand and action.state == ActionState.SENT
    engine_id = action.engine.engine_id if action.engine is not None else ""
    draining = action.state == ActionState.DRAINING
    says = drain_words(drains.get(engine_id), seen.get(engine_id)) if draining else ""
    failing = is_open and action.attempts > 1
    return {
        "action": action,
        "what": action_words(action.kind, action.role if action.role != "mixed" else "", action.engine_name),
        "state": "Waiting for operator" if asks else word,
        "shape": "hot" if asks else "degraded" if failing else shape,
        "open": is_open,
        # Its state or what blocks it, with the countdown of a drain.
        "says": says or sentence(action.says),
        "tries": action.attempts if failing else 0,
        "retry": f"next try in {span((action.next_try_at - now).total_seconds())}" if failing else "",
        "at": moment(action.requested_at, now),
        "ends": _ends(action, is_open, now),
        "may_confirm": asks,
        "may_withdraw": is_open and (by_hand or action.state != ActionState.SENT),
    }


def drain_words(progress: DrainProgress | None, sample: EngineSample | None) -> str:
    """Return the progress of a drain; empty if unknown."""
    if progress is not None and progress.left:
        rest = "no estimate yet" if progress.about_s is None else f"about {roughly(progress.about_s)} to go"
        return f"{count(progress.left, 'request')} left, {rest}."
    if sample is None:
        return ""
    left = sample.running + sample.bound
    return f"{count(left, 'request')} left." if left else "No requests left."


def _ends(action: EngineAction, is_open: bool, now: datetime) -> str:
    if is_open:
        return f"gives up in {span((action.deadline_at - now).total_seconds())}"
    ended = moment(action.finished_at, now)
    return f"ended {ended.ago}" if ended is not None else ""
