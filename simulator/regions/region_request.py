"""One request between its client, gateways and an engine, and its prompt: a chain of segments, cut into keyed blocks.

Text that several requests share is one segment.
"""

from __future__ import annotations

from dataclasses import dataclass

import msgspec
from xxhash import xxh3_64_intdigest

BLOCK_TOKENS = 8
"""Tokens per block, as in vLLM: a match against segments loses 8 tokens in the mean."""


class PromptSegment(msgspec.Struct, frozen=True, gc=False):
    """A run of tokens. Its key identifies it together with all preceding tokens."""

    key: int
    tokens: int


class Prompt(msgspec.Struct, frozen=True, gc=False):
    """A prompt's length, and the chained keys of its full blocks."""

    tokens: int = 0
    keys: tuple[int, ...] = ()

    def then(self, *segments: PromptSegment) -> Prompt:
        """Return this prompt followed by more segments."""
        tokens, keys = self.tokens, list(self.keys)
        for segment in segments:
            tokens += segment.tokens
            # The segment of a block's last token identifies the whole prefix.
            keys += [
                xxh3_64_intdigest(block.to_bytes(8), segment.key) for block in range(len(keys), tokens // BLOCK_TOKENS)
            ]
        return Prompt(tokens, tuple(keys))


EMPTY = Prompt()


@dataclass(slots=True, eq=False)
class RegionRequest:
    """A client's request and its progress so far (times in seconds)."""

    prompt: Prompt
    output: PromptSegment
    """The response, as the segment that it becomes in later prompts."""
    session_key: int
    region: str
    """The client's region."""
    position: int = 0
    """The request's position in the client's program."""
    client: int = 0
    request_id: str = ""
    tenant: str = ""
    sent_s: float = 0.0
    entry_region: str = ""
    """The region of the first gateway."""
    hops: int = 0
    allowed_by: str = ""
    """The sovereignty rule that allowed the request's hop to another region."""
    way_back_s: float = 0.0
    """Delay of a response from the engine to the client."""
    served_region: str = ""
    admitted_s: float | None = None
    cached_tokens: int = 0
    first_token_s: float | None = None
    """When the client receives the first token."""
    ended_s: float | None = None
    """When the client receives the end of the response."""

    @property
    def whole(self) -> Prompt:
        """The prompt and the response."""
        return self.prompt.then(self.output)
