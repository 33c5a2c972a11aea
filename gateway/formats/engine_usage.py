"""The usage that an answer reports, in the form of each API."""

from __future__ import annotations

import msgspec
from msgspec import field


class _Details(msgspec.Struct, gc=False):
    cached_tokens: int | None = None


class Usage(msgspec.Struct, gc=False):
    """The usage object of any of the APIs, as far as it is read here.

    Chat, completions and embeddings count in `prompt_tokens`, responses and Anthropic's messages in `input_tokens`;
    those of messages exclude tokens read from or written to a cache.
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
        """Cached prompt tokens; None where the engine does not report them, or reports nonsense."""
        details = self.prompt_tokens_details or self.input_details
        cached = details.cached_tokens if details is not None else self.cache_read
        return cached if cached is not None and 0 <= cached <= self._all_prompt_tokens else None

    @property
    def counted_tokens(self) -> int | None:
        """Prompt tokens as the engine counted them; None where it does not report them."""
        counted = self._all_prompt_tokens
        return counted if counted > 0 else None

    @property
    def output_tokens(self) -> int | None:
        """Tokens of the answer."""
        output = self.completion_tokens if self.completion_tokens is not None else self.output
        return output if output is not None and output >= 0 else None

    def after(self, earlier: Usage | None) -> Usage:
        """Return this usage, with missing fields taken from an earlier one of the same stream.

        The last one of a stream of messages may cover the output alone.
        """
        if earlier is None or self.prompt_tokens or self.input:
            return self
        return msgspec.structs.replace(earlier, output=self.output)
