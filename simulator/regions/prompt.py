"""Prompts as chains of segments: text that requests share is one segment, named once."""

from __future__ import annotations

import msgspec


class PromptSegment(msgspec.Struct, frozen=True, gc=False):
    """A run of tokens. Its key identifies it together with everything before it."""

    key: int
    tokens: int


class Prompt(msgspec.Struct, frozen=True, gc=False):
    """A prompt's segments from the last to the first, each with the tokens up to its end."""

    tokens: int
    deepest_first: tuple[tuple[int, int, int], ...]
    """(key, tokens up to the segment's end, tokens of the segment)."""

    def then(self, *segments: PromptSegment) -> Prompt:
        """Return this prompt continued by more segments."""
        tokens, parts = self.tokens, self.deepest_first
        for segment in segments:
            tokens += segment.tokens
            parts = ((segment.key, tokens, segment.tokens), *parts)
        return Prompt(tokens, parts)


EMPTY = Prompt(0, ())
