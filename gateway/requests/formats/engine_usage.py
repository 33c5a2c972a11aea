"""The usage in an answer, in the form of each API."""

from __future__ import annotations

import msgspec
from msgspec import field


class _Details(msgspec.Struct, gc=False):
    cached_tokens: int | None = None


class Usage(msgspec.Struct, gc=False):
    """The usage object of any of the APIs, with the fields read here.

    Chat, completions and embeddings count in `prompt_tokens`; responses and Anthropic's messages count in
    `input_tokens`. The counts of messages exclude tokens read from or written to a cache.
    """

    prompt_tokens: int = 0
    completion_tokens: int | None = None
    prompt_tokens_details: _Details | None = None
    input: int | None = field(name="input_tokens", default=None)
    output: int | None = field(name="output_tokens", default=None)
    input_details: _Details | None = field(name="input_tokens_details", default=None)
    cache_read: int | None = field(name="cache_read_input_tokens", default=None)
    cache_written: int | None = field(name="cache_creation_input_tokens", default=None)

    @property
    def _all_prompt_tokens(self) -> int:
        return self.prompt_tokens or (self.input or 0) + (self.cache_read or 0) + (self.cache_written or 0)

    @property
    def cached_tokens(self) -> int | None:
        """Return the cached prompt tokens, None if the engine's count is missing or implausible."""
        details = self.prompt_tokens_details or self.input_details
        cached = details.cached_tokens if details is not None else self.cache_read
        return cached if cached is not None and 0 <= cached <= self._all_prompt_tokens else None

    @property
    def counted_tokens(self) -> int | None:
        """Return the prompt tokens as counted by the engine, None if it does not report them."""
        counted = self._all_prompt_tokens
        return counted if counted > 0 else None

    @property
    def output_tokens(self) -> int | None:
        """Return the number of tokens in the answer."""
        output = self.completion_tokens if self.completion_tokens is not None else self.output
        return output if output is not None and output >= 0 else None

    def after(self, earlier: Usage | None) -> Usage:
        """Return this usage, with missing fields from an earlier usage of the same stream.

        The last usage of a messages stream can cover only the output.
        """
        if earlier is None or self.prompt_tokens or self.input:
            return self
        return msgspec.structs.replace(earlier, output=self.output)
