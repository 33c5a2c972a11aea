"""How long a prefill takes: the cost polynomial that estimates and simulated engines share.

seconds = a + b·u + c·u·(L − u/2) + e·hit, with u uncached tokens (at least 1), L prompt tokens and
hit cached tokens: linear layers, attention over the growing context, and loading cached blocks.
"""

from __future__ import annotations

import msgspec

from routing.policy_document import PrefillCostDocument


class PrefillCost(msgspec.Struct, frozen=True, gc=False):
    """Coefficients in seconds; see the module's formula."""

    base_s: float = 0.010
    per_token_s: float = 0.08e-3
    per_token_squared_s: float = 2e-9
    per_hit_token_s: float = 2e-6

    @classmethod
    def of(cls, document: PrefillCostDocument) -> PrefillCost:
        """Return the model with the policy's coefficients."""
        return cls(document.base_s, document.per_token_s, document.per_token_squared_s, document.per_hit_token_s)

    def seconds(self, prompt_tokens: int, hit_tokens: float) -> float:
        """Return the prefill time of a prompt of which `hit_tokens` are cached; the last token never is."""
        uncached = max(prompt_tokens - hit_tokens, 1.0)
        return (
            self.base_s
            + self.per_token_s * uncached
            + self.per_token_squared_s * uncached * (prompt_tokens - uncached / 2)
            + self.per_hit_token_s * hit_tokens
        )

    def tokens_per_s(self, prompt_tokens: int = 8192) -> float:
        """Return the uncached tokens that one engine prefills per second in prompts of this length."""
        return prompt_tokens / self.seconds(prompt_tokens, 0)
