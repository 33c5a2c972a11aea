"""What a preflight asks an engine beyond what the live wing does: its model cards, and one short completion."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from gateway.engines.vllm_adapter import EngineAnswerError, VllmAdapter
from routing.values.prepared_struct import prepared

COMPLETION_S = 12.0
"""A busy engine may let the probe wait; longer than this says that it is too busy to be judged."""
MAX_COMPLETION_BYTES = 256 << 10

Wanted = TypeVar("Wanted")


class ModelCard(msgspec.Struct, frozen=True):
    """One model that an engine serves; `max_model_len` in tokens, None where it does not say."""

    id: str
    max_model_len: int | None = None
    root: str | None = None
    """The weights; the same for all names of one model."""
    parent: str | None = None
    """The model that a LoRA adapter changes; None for a model by itself."""


class _Cards(msgspec.Struct):
    data: list[ModelCard]


class _PromptDetails(msgspec.Struct):
    cached_tokens: int | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int | None = None
    prompt_tokens_details: _PromptDetails | None = None


class Completion(msgspec.Struct, frozen=True):
    """What a completion tells about the prompt; its text is not read."""

    usage: _Usage | None = None

    @property
    def prompt_tokens(self) -> int | None:
        """Prompt tokens as the engine counts them; None where it does not."""
        return self.usage.prompt_tokens if self.usage else None

    @property
    def reports_cached_tokens(self) -> bool:
        """Whether the engine says how much of the prompt it had cached."""
        details = self.usage.prompt_tokens_details if self.usage else None
        return details is not None and details.cached_tokens is not None


class EngineUnderTest(VllmAdapter):
    """One engine before it serves; calls raise EngineUnreachableError or EngineAnswerError."""

    async def model_cards(self) -> tuple[ModelCard, ...]:
        """Return the models that the engine serves."""
        answer = await self._get("/v1/models", "models")
        return tuple(_decode(answer, _Cards, "models").data)

    async def complete(self, prompt: str) -> Completion:
        """Have the engine prefill the prompt and answer one token."""
        body: dict[str, Any] = {"model": self._served_model, "prompt": prompt, "max_tokens": 1, "temperature": 0}
        answer = await self._request(
            "POST",
            "/v1/completions",
            "completions",
            limit=MAX_COMPLETION_BYTES,
            timeout_s=COMPLETION_S,
            body=msgspec.json.encode(body),
        )
        return _decode(answer, Completion, "completions")


def _decode(answer: bytes, kind: type[Wanted], what: str) -> Wanted:
    try:
        return msgspec.json.decode(answer, type=prepared(kind))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise EngineAnswerError(f"{what} returned an unexpected answer") from None
