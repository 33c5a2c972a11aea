"""What a log does not state about its requests, and what an audit assumes instead."""

from __future__ import annotations

from collections.abc import Sequence

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
    blocks = [not request.blocks for request in requests]
    sessions = [not (request.blocks or request.session) for request in requests]
    prompts = sum(request.block_source == "prompt" for request in requests)
    return [
        LogGap(fact, missing, len(requests), assumed)
        for fact, missing, assumed in (
            (
                "Engine",
                sum(not request.engine for request in requests),
                f"The log does not state who received these requests. The rule {rule} places them in the simulation, "
                "so their regret is that rule's.",
            ),
            (
                "Prompt length",
                sum(request.prompt_tokens is None for request in requests),
                f"The median of the other requests, or {ASSUMED_PROMPT_TOKENS} tokens. Add a second log of the same "
                "requests that has lengths.",
            ),
            (
                "Counted prompt length",
                sum(request.estimated for request in requests),
                "Four bytes of the request's body are one token.",
            ),
            (
                "Prompt blocks",
                sum(blocks),
                "Only lengths are known, so prefixes that different sessions share are not seen. Each request of a "
                "session repeats and extends the previous one.",
            ),
            (
                "Blocks or session",
                sum(sessions),
                "These prompts share nothing with any other. Hits, and regret from hits, are missing from the result.",
            ),
            (
                "Engine's own token ids",
                prompts,
                "Prompts were cut into blocks here, four bytes per token, and then discarded.",
            ),
            (
                "Cached tokens",
                sum(request.cached_tokens is None for request in requests),
                "Hits are those of simulated caches.",
            ),
            (
                "Time to first token",
                sum(request.ttft_s is None for request in requests),
                "The simulated time counts.",
            ),
            (
                "Output length",
                sum(request.output_tokens is None for request in requests),
                f"The median of the other requests, or {ASSUMED_OUTPUT_TOKENS} tokens.",
            ),
        )
        if missing
    ]
