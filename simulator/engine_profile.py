"""The figures of one simulated engine: how long prefill and decode take, and how much fits."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
from msgspec import Meta


class UnreadableProfileError(ValueError):
    """The file is no engine profile; the message says which field is wrong."""


class EngineProfile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Cost of prefill and decode, cache and batch size; the defaults are the reference model.

    Reference model: the scheduling study's §1, a 1,000,000-token cache of 512-token blocks and one
    prefill at a time. A full 9,585-token prompt takes 0.87 s.
    """

    prefill_base_s: Annotated[float, Meta(ge=0)] = 0.010
    prefill_per_token_s: Annotated[float, Meta(ge=0)] = 0.08e-3
    prefill_per_token_squared_s: Annotated[float, Meta(ge=0)] = 2e-9
    prefill_per_hit_token_s: Annotated[float, Meta(ge=0)] = 2e-6
    step_base_s: Annotated[float, Meta(gt=0)] = 0.015
    step_per_sequence_s: Annotated[float, Meta(ge=0)] = 0.1e-3
    step_per_context_token_s: Annotated[float, Meta(ge=0)] = 30e-9
    block_tokens: Annotated[int, Meta(ge=1, le=65_536)] = 512
    num_blocks: Annotated[int, Meta(ge=1, le=10_000_000)] = 1953
    max_running: Annotated[int, Meta(ge=1, le=65_536)] = 256
    recompute_last_block: bool = False
    """True: of a prompt that is cached whole, the last block is computed again, as vLLM does."""

    def prefill_s(self, prompt_tokens: int, hit_tokens: int) -> float:
        """Return the seconds one prefill takes; at least one token is computed."""
        uncached = max(1, prompt_tokens - hit_tokens)
        return (
            self.prefill_base_s
            + self.prefill_per_token_s * uncached
            + self.prefill_per_token_squared_s * uncached * (prompt_tokens - uncached / 2)
            + self.prefill_per_hit_token_s * hit_tokens
        )

    def step_s(self, batch: int, context_tokens: int) -> float:
        """Return the seconds of one decode step of `batch` sequences that attend to `context_tokens` in all."""
        return self.step_base_s + self.step_per_sequence_s * batch + self.step_per_context_token_s * context_tokens

    def hit_tokens(self, prompt_tokens: int, held_blocks: int) -> int:
        """Return the prompt tokens that `held_blocks` leading blocks save."""
        if self.recompute_last_block:
            held_blocks = min(held_blocks, max(0, prompt_tokens - 1) // self.block_tokens)
        return min(held_blocks * self.block_tokens, prompt_tokens)


def read_profile(path: Path) -> EngineProfile:
    """Read a JSON object of EngineProfile's fields; raises UnreadableProfileError with the path of the fault."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=EngineProfile)
    except OSError as error:
        raise UnreadableProfileError(f"cannot read engine profile {path}: {error.strerror}") from error
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise UnreadableProfileError(f"{path} is no engine profile: {error}") from error
