"""What engines need to load by themselves before a prefill: KV blocks of their own lower tiers, and LoRA adapters.

Learned per kind of engine from prefills that had to load: what they took beyond the expected computation. Until a
kind's first such prefills, a tier's prior is a share of the time that computing the same tokens takes: bytes of KV and
time per token both grow with the model, so that the share holds for small and large ones. A kind's figures that no
prefill confirmed for a while give way to the priors again; a tier that was slow would else never be used again.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from kvstore.index.lower_tiers import CPU, DISK, EXTERNAL
from routing.cost.load_rate import LoadRate

LATENCY_S = 0.001
SHARE_OF_COMPUTE = {CPU: 0.125, DISK: 0.5, EXTERNAL: 0.8}
"""An 8B model on one H100 computes a token in about 30 µs; its 128 KiB of KV take 7 µs at 20 GB/s, 43 µs at 3 GB/s."""
ADAPTER_S = 0.02
"""An adapter in the engine's CPU memory is copied in so many seconds; one on disk takes longer, which is learned."""
FORGOTTEN_AFTER_S = 600.0
_SHARE = 0.2
_LEAST_TOKEN_S = 1e-9
_MOST_ADAPTER_S = 60.0


class _Adapters(msgspec.Struct, gc=False):
    """Seconds beyond the expected computation, of requests whose adapter was loaded before, and of others. Mutable."""

    first_s: float = ADAPTER_S
    later_s: float = 0.0
    firsts: int = 0
    laters: int = 0
    used_at: float = 0.0


class LoadingCosts:
    """One pool's costs of loading. Mutable: `kinds`, and what was learned of each (kind, tier) and kind."""

    def __init__(self) -> None:
        self.kinds: Mapping[str, str] = {}
        """Engine id → its kind, as the topology says."""
        self._tiers: dict[tuple[str, str], tuple[LoadRate, float]] = {}
        self._adapters: dict[str, _Adapters] = {}

    def tier_s(self, engine_id: str, tier: str, tokens: int, token_s: float) -> float:
        """Return the expected seconds of loading so many tokens of a tier, where computing one takes `token_s`."""
        known = self._tiers.get((self.kinds.get(engine_id, ""), tier))
        return (_prior(tier, token_s) if known is None else known[0]).seconds(tokens)

    def adapter_s(self, engine_id: str) -> float:
        """Return the expected seconds of loading an adapter."""
        learned = self.learned_adapter_s(engine_id)
        return ADAPTER_S if learned is None else learned

    def learned_adapter_s(self, engine_id: str) -> float | None:
        """Return the learned seconds of loading an adapter; None: there is only the prior."""
        known = self._adapters.get(self.kinds.get(engine_id, ""))
        if known is None or not known.firsts or not known.laters:
            return None
        return max(0.0, known.first_s - known.later_s)

    def token_s(self, engine_id: str, tier: str) -> float | None:
        """Return the learned seconds of loading one token of a tier; None: there is only the prior."""
        known = self._tiers.get((self.kinds.get(engine_id, ""), tier))
        return None if known is None else known[0].s_per_byte

    def loaded(
        self, engine_id: str, tiers: Mapping[str, int], adapter: bool, extra_s: float, token_s: float, now: float
    ) -> None:
        """Learn from a prefill that loaded so many tokens by tier, or an adapter, and took so much longer for it.

        Of both at once each learns what the other leaves of the time.
        """
        kind = self.kinds.get(engine_id, "")
        self._forget(now)
        parts = {tier: self.tier_s(engine_id, tier, tokens, token_s) for tier, tokens in tiers.items()}
        loads_s, adapter_s = sum(parts.values()), self.adapter_s(engine_id) if adapter else 0.0
        for tier, seconds in parts.items():
            known = self._tiers.get((kind, tier))
            rate = _prior(tier, token_s) if known is None else known[0]
            rate.observe(tiers[tier], max((extra_s - adapter_s) * seconds / loads_s, _LEAST_TOKEN_S))
            self._tiers[kind, tier] = rate, now
        if adapter:
            known_s = min(max(extra_s - loads_s, -_MOST_ADAPTER_S), _MOST_ADAPTER_S)
            each = self._adapters.setdefault(kind, _Adapters())
            each.firsts, each.used_at = each.firsts + 1, now
            each.first_s += max(_SHARE, 1 / each.firsts) * (known_s - each.first_s)

    def served(self, engine_id: str, extra_s: float) -> None:
        """Learn from a prefill whose adapter had been loaded before: to compute with an adapter takes longer, too."""
        each = self._adapters.setdefault(self.kinds.get(engine_id, ""), _Adapters())
        each.laters += 1
        known_s = min(max(extra_s, -_MOST_ADAPTER_S), _MOST_ADAPTER_S)
        each.later_s += max(_SHARE, 1 / each.laters) * (known_s - each.later_s)

    def _forget(self, now: float) -> None:
        self._tiers = {name: each for name, each in self._tiers.items() if now - each[1] < FORGOTTEN_AFTER_S}
        for each in self._adapters.values():
            if each.firsts and now - each.used_at >= FORGOTTEN_AFTER_S:
                each.first_s, each.firsts = each.later_s + ADAPTER_S, 0


def _prior(tier: str, token_s: float) -> LoadRate:
    """Return the prior of a tier; `LoadRate`'s unit of size is a token here."""
    return LoadRate(LATENCY_S, max(SHARE_OF_COMPUTE[tier] * token_s, _LEAST_TOKEN_S))
