"""Describes the way of a request through its service: pools that did not serve it, and the provider."""

from __future__ import annotations

from controlplane.platform.format import duration
from gateway.contracts.stored_decision import ServiceStory, StoredDecision
from routing.values import reasons

_REASONS = {
    "no_engine": "it had no engine that accepts work",
    "late": "its wait exceeded the TTFT objective",
    "engine_unreachable": "no engine accepted it",
    "engine_busy": "its engines were busy",
}
_WITHHELD = {
    "paused": "it was paused after failures",
    "no_key": "its key variable is not set at the gateway",
    "path": "it does not serve this path",
}


def service_facts(story: ServiceStory | None) -> list[tuple[str, str]]:
    """Return the facts of the service as (title, text); empty if the request named none."""
    if story is None:
        return []
    named = story.service if story.asked == story.service else f"{story.service}, asked for as {story.asked}"
    tried = "; ".join(f"{pool}: {pool_reason(code)}" for pool, code in story.tried)
    return [("Service", named), ("Not served by", tried), ("Provider", _provider(story))]


def pool_reason(code: str) -> str:
    """Return why a pool did not serve a request, in words."""
    return _REASONS.get(code) or reasons.words(code)


def by_provider(stored: StoredDecision) -> ServiceStory | None:
    """Return the story of a request that a provider answered, None if an engine or nothing answered it."""
    story = stored.service
    outside = story is not None and bool(story.provider) and not stored.decision.engine_id
    return story if outside and stored.outcome != "rejected" else None


def provider_happened(stored: StoredDecision, story: ServiceStory) -> str:
    """Return what the client got from the provider."""
    took = duration(stored.finished_after_s or 0.0)
    if stored.outcome == "completed":
        cost = "" if story.cost is None else f" for {dollars(story.cost)}"
        return f"{story.provider} answered after {took}{cost}. "
    return f"{story.provider} ended it after {took} ({stored.error or stored.outcome}). "


def dollars(cost: float) -> str:
    """Return an amount with enough digits to be above zero."""
    return f"${cost:,.2f}" if cost >= 1 else f"${cost:.6f}".rstrip("0").rstrip(".")


def _provider(story: ServiceStory) -> str:
    if story.withheld:
        return f"not asked: {_WITHHELD.get(story.withheld, story.withheld)}" if story.tried else ""
    if not story.provider:
        return ""
    cost = "" if story.cost is None else f", {dollars(story.cost)}"
    return f"{story.provider}, {story.provider_model}, status {story.status or 'none'}{cost}"
