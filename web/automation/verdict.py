"""The sentence above a pool's Automation page: who controls the pool, and what that means now."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from controlplane.automation.reading import PoolAutomationState
from controlplane.fleet.models.pool import Pool
from controlplane.platform.format import count, moment
from web.automation.cards import AutomationCard
from web.automation.words import action_words


def verdict(pool: Pool, state: PoolAutomationState, cards: Sequence[AutomationCard], now: datetime) -> tuple[str, str]:
    """Return the most important fact about the pool's automation in emphasized words, then the other facts."""
    if state.frozen:
        since = moment(state.changed_at, now)
        when = f" by {state.changed_by}, {since.ago}" if since is not None else ""
        why = f": {state.why}" if state.why else ""
        return ("Frozen.", f"Automations of {pool.name} take no action. Frozen{when}{why}.")
    if state.engines["failed"]:
        failed = count(state.engines["failed"], "engine")
        return (f"{failed} failed.", _sizes(state))
    if state.override_until is not None:
        return ("Engine count fixed.", _sizes(state))
    if state.actions:
        first = state.actions[0]
        does = action_words(first.kind, first.role if first.role != "mixed" else "", first.engine_name)
        more = f" and {count(len(state.actions) - 1, 'more action')}" if len(state.actions) > 1 else ""
        return ("Changing.", f"{does}{more}. {_sizes(state)}")
    advice = [card for card in cards if card.mode == "Advises" and not card.idle]
    if advice:
        return (f"{advice[0].title}:", advice[0].state[0].lower() + advice[0].state[1:])
    acting = [card.title.lower() for card in cards if card.mode == "Acts"]
    steered = f"Automatic: {', '.join(acting)}." if acting else "No automation is active."
    return ("Steady.", f"{_sizes(state)} {steered}")


def _sizes(state: PoolAutomationState) -> str:
    counts = state.engines
    return f"{counts['running']} of {count(counts['desired'], 'desired engine')} running."
