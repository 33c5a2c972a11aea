"""Prompts as chains of segments. Text that several requests share is one segment with one key."""

from __future__ import annotations

import msgspec


class PromptSegment(msgspec.Struct, frozen=True, gc=False):
    """A run of tokens. Its key identifies it together with all preceding tokens."""

    key: int
    tokens: int


class Prompt(msgspec.Struct, frozen=True, gc=False):
    """A prompt's segments from last to first, each with the number of tokens up to its end."""

    tokens: int
    deepest_first: tuple[tuple[int, int, int], ...]
    """(key, tokens up to the segment's end, tokens of the segment)."""

    def then(self, *segments: PromptSegment) -> Prompt:
        """Return this prompt followed by more segments."""
        tokens, parts = self.tokens, self.deepest_first
        for segment in segments:
            tokens += segment.tokens
            parts = ((segment.key, tokens, segment.tokens), *parts)
        return Prompt(tokens, parts)


EMPTY = Prompt(0, ())
