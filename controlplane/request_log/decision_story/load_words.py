"""Describes an engine's KV load from node managers: source, amount, duration, and benefit."""

from __future__ import annotations

from controlplane.platform.format import byte_size, count, duration, whole
from controlplane.request_log.decision_story.emphasis import strong
from gateway.contracts.stored_decision import StoredDecision
from routing.values.decision import Candidate

TIER_PHRASES = {"cpu": "in CPU memory", "disk": "on disk", "external": "in an external store"}
"""Descriptions of an engine's own cache tiers."""
_REASONS = {
    "missing": "the node no longer had all of it",
    "late": "it would have taken longer than computing",
    "failed": "the node could not be read",
}


def held_on_node(stored: StoredDecision) -> str:
    """Return the part of the prompt cached on a node, if the decision relied on it; otherwise empty."""
    fetch, decision = stored.decision.fetch, stored.decision
    if fetch is None or not fetch.node:
        return ""
    held = min(fetch.blocks * stored.block_tokens, decision.prompt_tokens)
    part = strong(f"{whole(held)} of {whole(decision.prompt_tokens)}")
    return f"Node {fetch.node} had {part}, to be loaded in {duration(fetch.seconds)}. "


def held_below(stored: StoredDecision) -> str:
    """Return sentences about the KV that the engine was to load from its own tiers; empty for nothing."""
    loading, words = stored.decision.loading, ""
    if loading is None:
        return words
    for tier, tokens in loading.tier_tokens.items():
        words += f"It had {strong(whole(tokens))} more {TIER_PHRASES[tier]}. "
    if loading.adapter:
        words += f"It had to load the LoRA adapter {loading.adapter}. "
    return words + f"Loading was expected to take {strong(duration(loading.seconds))}. "


def own_load(candidate: Candidate) -> str:
    """Return a short text about the KV that a candidate would load from its own tiers; empty for nothing."""
    loading = candidate.loading
    if loading is None:
        return ""
    parts = [f"{whole(tokens)} tok {TIER_PHRASES[tier]}" for tier, tokens in loading.tier_tokens.items()]
    parts += ["adapter not loaded"] if loading.adapter else []
    return f"{', '.join(parts)} ({duration(loading.seconds)})"


def what_was_loaded(stored: StoredDecision) -> str:
    """Return the outcome of the ordered load; empty without one."""
    load = stored.load
    if load is None:
        return ""
    ordered = count(load.ordered_blocks, "block")
    if load.reason == "untold" and not load.blocks:
        return f" It was to load {ordered} from node {load.node}; the engine does not report the result."
    if not load.blocks:
        why = _REASONS.get(load.reason, "the engine held it already" if stored.outcome == "completed" else "")
        return f" Nothing was loaded from node {load.node}{f': {why}' if why else ''}."
    size = f"{count(load.blocks, 'block')}, {byte_size(load.bytes)}"
    words = f" It loaded {strong(count(load.saved_tokens, 'token'))} ({size}) from node {load.node}"
    words += f" in {strong(duration(load.seconds))}" if load.seconds else ""
    computed_s = computed_instead_s(stored)
    if computed_s is not None:
        words += f"; computing them was expected to take {strong(duration(computed_s))}"
        if computed_s < load.seconds:
            words += ", so loading was slower"
    if load.reason:
        words += f"; {ordered} were ordered, but {_REASONS.get(load.reason, '')}"
    words += "; inferred from its cached tokens, because it does not report loads" if load.inferred else ""
    return f"{words}."


def computed_instead_s(stored: StoredDecision) -> float | None:
    """Return the seconds to prefill the loaded tokens instead, by the cost at that time; None: unknown."""
    load, cost, reported = stored.load, stored.cost, stored.cached_tokens
    if load is None or not load.saved_tokens or cost is None or stored.speed <= 0:
        return None
    prompt = stored.decision.prompt_tokens
    hit = min(reported if reported is not None else load.saved_tokens, prompt)
    without = max(0, hit - load.saved_tokens)
    return max(0.0, cost.seconds(prompt, without) - cost.seconds(prompt, hit)) / stored.speed


def load_fact(stored: StoredDecision) -> str:
    """Return a short text about the load; empty without one."""
    load = stored.load
    if load is None:
        return ""
    if not load.blocks:
        ordered = count(load.ordered_blocks, "block")
        return f"{ordered}, {load.node}, not reported" if load.reason == "untold" else f"0 of {ordered}, {load.node}"
    figures = f"{whole(load.saved_tokens)} tok, {load.node}"
    figures += f", {duration(load.seconds)}" if load.seconds else ""
    return f"{figures}, inferred" if load.inferred else figures
