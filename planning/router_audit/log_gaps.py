"""What a log does not state about its requests, and what an audit assumes instead."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from planning.router_audit.logged_request import LoggedRequest

ASSUMED_PROMPT_TOKENS = 1000
ASSUMED_OUTPUT_TOKENS = 128


class LogGap(msgspec.Struct, frozen=True):
    """One kind of fact that is missing."""

    fact: str
    missing: int
    """Number of requests without it."""
    total: int
    assumed: str
    """What is assumed instead, as a sentence."""


def log_gaps(requests: Sequence[LoggedRequest], rule: str) -> list[LogGap]:
    """Return the missing facts, most consequential first. `rule` places requests whose engine is not logged."""
    facts: tuple[tuple[str, Callable[[LoggedRequest], bool], str], ...] = (
        ("Engine", lambda item: not item.engine, f"The rule {rule} places these requests in the simulation, so their "
         "regret is that rule's."),
        ("Prompt length", lambda item: item.prompt_tokens is None, "The median of the other requests, or "
         f"{ASSUMED_PROMPT_TOKENS} tokens. Join a log of the same requests that has lengths."),
        ("Counted prompt length", lambda item: item.estimated, "Four bytes of the request's body are one token."),
        ("Prompt blocks", lambda item: not item.blocks, "Only lengths are known, so prefixes that different sessions "
         "share are not seen. Each request of a session repeats and extends the previous one."),
        ("Blocks or session", lambda item: not (item.blocks or item.session), "These prompts share nothing with any "
         "other. Hits, and regret from hits, are missing from the result."),
        ("Engine's own token ids", lambda item: item.block_source == "prompt", "Prompts were cut into blocks here, "
         "four bytes per token, and then discarded."),
        ("Cached tokens", lambda item: item.cached_tokens is None, "Hits are those of simulated caches."),
        ("Time to first token", lambda item: item.ttft_s is None, "The simulated time counts. If all are missing, "
         "--profile with the engines' speed narrows the ranges."),
        ("Output length", lambda item: item.output_tokens is None, "The median of the other requests, or "
         f"{ASSUMED_OUTPUT_TOKENS} tokens."),
    )  # fmt: skip
    counted = ((fact, sum(map(misses, requests)), instead) for fact, misses, instead in facts)
    return [LogGap(fact, missing, len(requests), instead) for fact, missing, instead in counted if missing]
