"""Describes an engine's facts and the objects created from them, for the console and the command line."""

from __future__ import annotations

from controlplane.fleet.connect.connection import EngineConnection
from controlplane.fleet.connect.engine_facts import SGLANG, ConnectedEngineFacts
from controlplane.fleet.models.engine import EngineRole
from controlplane.platform.format import some_names
from routing.values.counted import count

_LISTED = 5
NOT_ROUTED = ", which are not routed: SGLang takes an adapter in a field of its own"


def fact_lines(facts: ConnectedEngineFacts) -> list[str]:
    """Return one line per reported fact."""
    product = " ".join(filter(None, (facts.product or "An engine", facts.version)))
    lines = [f"{product} serves {facts.names[0]}{_also(facts.names[1:])}."]
    sizes = [
        facts.block_tokens and f"blocks of {count(facts.block_tokens, 'token')}",
        facts.kv_tokens and f"KV cache of {count(facts.kv_tokens, 'token')}",
        facts.context_tokens and f"context of {count(facts.context_tokens, 'token')}",
        facts.ranks > 1 and f"{facts.ranks} data-parallel ranks, each with its own cache",
    ]
    if listed := ", ".join(str(size) for size in sizes if size):
        lines.append(f"{listed[:1].upper()}{listed[1:]}.")
    replay = f", replay {facts.replay}" if facts.replay else ", no replay"
    if facts.role != EngineRole.MIXED:
        lines.append(f"{EngineRole(facts.role).label}.")
    of_all = f" and of {count(facts.ranks - 1, 'further rank')}" if facts.ranks > 1 else ""
    lines.append(f"KV events {facts.events}{replay}{of_all}." if facts.events else "No KV events.")
    if facts.adapters:
        lines.append(f"LoRA adapters: {_listed(facts.adapters)}{NOT_ROUTED if facts.product == SGLANG else ''}.")
    return lines


def made_words(plan: EngineConnection, others: int = 0) -> str:
    """Return which of region, pool, and engine are new. `others` is the number of other ranks connected with it."""
    region = f"{'new ' if plan.new_region else ''}region {plan.region_slug}"
    pool = f"{'' if plan.pool else 'new '}pool {plan.pool_slug}"
    engine = f"{'' if plan.engine else 'new '}engine {plan.engine_name}"
    words = f"{region}, {pool}, {engine}{f' and {others} more, one per rank' if others else ''}."
    return f"{words[:1].upper()}{words[1:]}"


def _also(names: tuple[str, ...]) -> str:
    return f", also named {_listed(names)}" if names else ""


def _listed(names: tuple[str, ...]) -> str:
    return some_names([name[:80] for name in names], _LISTED)
