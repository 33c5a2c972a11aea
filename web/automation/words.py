"""Automations, plans, and actions in words for the Automation pages."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from controlplane.automation.models.engine_action import ActionKind, ActionState
from controlplane.platform.format import count, percent, some_names

TITLES = {
    "engine_health": "Engine health",
    "rebalance": "Rebalancing",
    "scaling": "Scaling",
    "prefill_decode": "Prefill/decode ratio",
}
MODES = {
    "off": ("Off", "maintenance"),
    "advise": ("Advises", "advises"),
    "act": ("Acts", "serving"),
    "frozen": ("Frozen", "hot"),
    "override": ("Overridden", "draining"),
}
"""Word and shape of each mode in force."""
ACTION_STATES = {
    ActionState.WANTED: ("Pending", "starting"),
    ActionState.DRAINING: ("Draining", "draining"),
    ActionState.SENT: ("In progress", "starting"),
    ActionState.DONE: ("Done", "serving"),
    ActionState.FAILED: ("Failed", "lost"),
    ActionState.CANCELLED: ("Canceled", "maintenance"),
}

_NAMED = 4
"""Number of engines that a sentence names; the others are only counted."""
_VERDICT_VERBS = {
    "quarantined": "quarantine",
    "probation": "return",
    "suspect": "suspect",
    "healthy": "clear",
}


def change_words(job: str, plan: Mapping[str, Any], names: Mapping[str, str]) -> str:
    """Return the action that a plan wants as the second half of a sentence; empty if it wants none."""
    if job == "scaling":
        return _scaling_words(plan, names)
    if job == "prefill_decode":
        return ", ".join(
            f"change {names.get(item['engine_id'], item['engine_id'])} to {item['after']}"
            for item in plan.get("role_changes", ())
        )
    if job == "rebalance":
        return _rebalance_words(plan)
    return _health_words(plan, names)


def _scaling_words(plan: Mapping[str, Any], names: Mapping[str, str]) -> str:
    add, drain = plan.get("add", ()), plan.get("drain", ())
    parts = []
    if add:
        roles = sorted({role for role in add if role != "mixed"})
        per_role = ", ".join(f"{sum(role == one for role in add)} {one}" for one in roles)
        parts.append(f"add {count(len(add), 'engine')}{f' ({per_role})' if per_role else ''}")
    if drain:
        parts.append(f"drain {some_names([names.get(item, item) for item in drain], _NAMED)}")
    return " and ".join(parts)


def _rebalance_words(plan: Mapping[str, Any]) -> str:
    parts = []
    if wider := len(plan.get("wider", ())):
        parts.append(f"widen {count(wider, 'prefix', 'prefixes')}")
    if narrower := len(plan.get("narrower", ())):
        parts.append(f"narrow {count(narrower, 'prefix', 'prefixes')}")
    if moves := sum(item.get("at_most", 0) for item in plan.get("moves", ())):
        parts.append(f"move up to {count(moves, 'queued request')}")
    return ", ".join(parts)


def _health_words(plan: Mapping[str, Any], names: Mapping[str, str]) -> str:
    states = {item.get("engine_id"): item.get("state") for item in plan.get("verdicts", ())}
    engine_names: dict[str, list[str]] = {}
    for engine_id in plan.get("changed", ()):
        engine_names.setdefault(states.get(engine_id, "healthy"), []).append(names.get(engine_id, engine_id))
    parts = [(verb, engine_names[state]) for state, verb in _VERDICT_VERBS.items() if state in engine_names]
    return " and ".join(f"{verb} {some_names(engines, _NAMED)}" for verb, engines in parts)


def action_words(kind: str, role: str, name: str) -> str:
    """Return in words what an action does."""
    if kind == ActionKind.START:
        return f"Start {name}" if name else f"Start {_an(role)} engine"
    if kind == ActionKind.STOP:
        return f"Drain and stop {name}"
    return f"Change {name} to {_an(role)} engine"


def remap_words(plan: Mapping[str, Any]) -> str:
    """Return how much of the hash rings moves when the pool's size changes; empty if nothing moves."""
    remap = plan.get("remap")
    if not isinstance(remap, Mapping) or not isinstance(remap.get("share"), int | float):
        return ""
    return f"{percent(remap['share'])} of prefixes move to other engines"


def _an(role: str) -> str:
    return f"a {role}" if role else "an"
