"""Sentences for verdicts on an engine's index, with the remedy."""

from __future__ import annotations

from gateway.contracts.hit_sample import EVICTION, LATE_EVENT, SALT, TEMPLATE, TOKENIZER, UNKNOWN
from gateway.pools.engines.hit_pattern import BLIND, EXACT, HitVerdict
from routing.values.counted import count

CAUSE_TITLES = {
    TOKENIZER: "tokenizer",
    TEMPLATE: "chat template",
    SALT: "cache salt",
    EVICTION: "eviction",
    LATE_EVENT: "late event",
    UNKNOWN: "unknown",
}
_CAUSES = {
    TOKENIZER: "the engine tokenizes prompts differently from our keys; compare its tokenizer with the pool's",
    TEMPLATE: "a part common to all prompts is rendered differently; compare the engine's chat template",
    SALT: "the engine uses another cache salt; check that nothing in between changes cache_salt",
    EVICTION: "the engine evicts blocks before they are reused; it has too little KV memory for this traffic",
    LATE_EVENT: "the engine's events are late or lost; check its event endpoint and the network",
    UNKNOWN: "no known cause",
}


def cause_words(cause: str) -> str:
    """Return the cause as the second half of a sentence. An unknown code is returned unchanged."""
    return _CAUSES.get(cause, cause)


def verdict_words(verdict: HitVerdict) -> str:
    """Return why the index is trusted less, as a sentence; empty if it is trusted."""
    if verdict.grade == EXACT:
        return ""
    if verdict.share is None or (verdict.share == 0.0 and verdict.grade == BLIND):
        finding = f"the engine's hits differ from the index ({count(verdict.requests, 'request')})"
    else:
        finding = f"it had {verdict.share:.0%} of the tokens in the index ({count(verdict.requests, 'request')})"
    return f"{finding}: {cause_words(verdict.cause)}" if verdict.cause else finding
