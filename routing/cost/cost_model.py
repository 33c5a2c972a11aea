"""Duration of a prefill and of a decode step: the cost formulas shared by estimates and simulated engines.

A prefill: seconds = a + b·u + c·u·(L − u/2) + e·hit, with u uncached tokens (at least 1), L prompt tokens and hit
cached tokens: linear layers, attention over the growing context, and loading cached blocks.
"""

from __future__ import annotations

import math

import msgspec

from routing.policy.cost_document import DecodeCostDocument
from routing.policy.policy_document import PrefillCostDocument


class PrefillCost(msgspec.Struct, frozen=True, gc=False):
    """Coefficients in seconds for the module's formula."""

    base_s: float = 0.010
    per_token_s: float = 0.08e-3
    per_token_squared_s: float = 2e-9
    per_hit_token_s: float = 2e-6

    @classmethod
    def of(cls, document: PrefillCostDocument) -> PrefillCost:
        """Return the model with the policy's coefficients."""
        return cls(document.base_s, document.per_token_s, document.per_token_squared_s, document.per_hit_token_s)

    def seconds(self, prompt_tokens: int, hit_tokens: float) -> float:
        """Return the prefill time of a prompt with `hit_tokens` cached. The last token is always computed."""
        # Floats throughout and no max(): each request needs estimates of several engines.
        prompt, hit = prompt_tokens * 1.0, hit_tokens * 1.0
        left = prompt - hit
        # The last token is always computed, because its logits are needed.
        uncached = left if left > 1.0 else 1.0
        return (
            self.base_s
            + self.per_token_s * uncached
            # The uncached tokens are the last ones: they attend to L − u/2 tokens on average.
            + self.per_token_squared_s * uncached * (prompt - uncached / 2.0)
            + self.per_hit_token_s * hit
        )

    def tokens_per_s(self, prompt_tokens: int = 8192) -> float:
        """Return the uncached tokens per second that one engine prefills in prompts of this length."""
        return prompt_tokens / self.seconds(prompt_tokens, 0)


class DecodeCost(msgspec.Struct, frozen=True, gc=False):
    """Coefficients of one decode step in seconds: base + per sequence + per token that the batch attends to."""

    base_s: float = 0.015
    per_sequence_s: float = 0.1e-3
    per_context_token_s: float = 30e-9

    @classmethod
    def of(cls, document: DecodeCostDocument) -> DecodeCost:
        """Return the model with the policy's coefficients."""
        return cls(document.base_s, document.per_sequence_s, document.per_context_token_s)

    def seconds(self, batch: float, context_tokens: float) -> float:
        """Return the time of a step of `batch` requests that attend to `context_tokens` in total."""
        return self.base_s + self.per_sequence_s * batch + self.per_context_token_s * context_tokens

    def batch_within(self, seconds: float, context_tokens_per_request: float) -> float:
        """Return the largest batch whose step takes at most `seconds`: 0 if no request fits, inf without limit."""
        per_request_s = self.per_sequence_s + self.per_context_token_s * context_tokens_per_request
        if per_request_s <= 0:
            return math.inf if seconds >= self.base_s else 0.0
        return max(0.0, (seconds - self.base_s) / per_request_s)
