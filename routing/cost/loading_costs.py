"""Loads that an engine needs before a prefill: KV blocks of its own lower tiers, and LoRA adapters.

Learned per kind of engine from prefills that included a load: the time they took beyond the expected computation. Until
a kind's first such prefills, a tier's prior is a share of the time that computing the same tokens takes: bytes of KV
and time per token both grow with the model, so that the share holds for small and large ones. A kind's figures that no
prefill has confirmed for a while give way to the priors again; a slow tier would otherwise never be used again.
"""

from __future__ import annotations

from collections.abc import Mapping

from kvstore.index.lower_tiers import CPU, DISK, EXTERNAL
from routing.cost.nonnegative_fit import RunningMedian

SHARE_OF_COMPUTE = {CPU: 0.125, DISK: 0.5, EXTERNAL: 0.8}
"""An 8B model on one H100 computes a token in about 30 µs; its 128 KiB of KV take 7 µs at 20 GB/s, 43 µs at 3 GB/s."""
ADAPTER_S = 0.02
"""Time to copy an adapter from the engine's CPU memory; one on disk takes longer, which is learned."""
FORGOTTEN_AFTER_S = 600.0
_LOADS, _PRIORS = 31, 3


class _Learned:
    """The median of the last loads' figures, the prior counted in. Mutable.

    Prefills often vary by more than a load takes, mostly upwards, and one load may even seem to take less than none.
    """

    def __init__(self, prior: float) -> None:
        self._median = RunningMedian(_LOADS)
        self.used_at = 0.0
        for _ in range(_PRIORS):
            self._median.add(prior)

    @property
    def value(self) -> float:
        """The expected value, 0 or more."""
        return max(0.0, self._median.value(0.0))

    def observe(self, value: float, now: float) -> None:
        """Learn from one load."""
        self._median.add(value)
        self.used_at = now


class LoadingCosts:
    """One pool's costs of loading. Mutable: `kinds`, and the figures learned of each (kind, tier) and kind."""

    def __init__(self) -> None:
        self.kinds: Mapping[str, str] = {}
        """Engine id → its kind, as declared in the topology."""
        self._tiers: dict[tuple[str, str], _Learned] = {}
        self._adapters: dict[str, _Learned] = {}
        self._with_adapter: dict[str, _Learned] = {}

    def tier_s(self, engine_id: str, tier: str, tokens: int, token_s: float) -> float:
        """Return the expected seconds of loading `tokens` of a tier, where computing one takes `token_s`."""
        learned = self.token_s(engine_id, tier)
        return tokens * (SHARE_OF_COMPUTE[tier] * token_s if learned is None else learned)

    def token_s(self, engine_id: str, tier: str) -> float | None:
        """Return the learned seconds of loading one token of a tier; None: there is only the prior."""
        known = self._tiers.get((self.kinds.get(engine_id, ""), tier))
        return None if known is None else known.value

    def adapter_s(self, engine_id: str) -> float:
        """Return the expected seconds of loading an adapter."""
        learned = self.learned_adapter_s(engine_id)
        return ADAPTER_S if learned is None else learned

    def learned_adapter_s(self, engine_id: str) -> float | None:
        """Return the learned seconds of loading an adapter; None: there is only the prior."""
        known = self._adapters.get(self.kinds.get(engine_id, ""))
        return None if known is None else known.value

    def loaded(
        self, engine_id: str, tiers: Mapping[str, int], adapter: bool, extra_s: float, token_s: float, now: float
    ) -> None:
        """Learn from a prefill that loaded tokens by tier, or an adapter, and took `extra_s` longer for it.

        With tiers and an adapter at once, each learns from the time that the others leave, tiers by their expected
        parts.
        """
        kind = self.kinds.get(engine_id, "")
        self._forget(now)
        parts = {tier: self.tier_s(engine_id, tier, tokens, token_s) for tier, tokens in tiers.items()}
        loads_s, adapter_s = sum(parts.values()), self.adapter_s(engine_id) if adapter else 0.0
        for tier, seconds in parts.items():
            part = seconds / loads_s if loads_s else tiers[tier] / sum(tiers.values())
            prior = SHARE_OF_COMPUTE[tier] * token_s
            known = self._tiers.setdefault((kind, tier), _Learned(prior))
            known.observe((extra_s - adapter_s) * part / tiers[tier], now)
        if adapter:
            with_adapter = self._with_adapter.get(kind)
            # Computing with an adapter takes longer too, loaded or not.
            usual_s = 0.0 if with_adapter is None else with_adapter.value
            self._adapters.setdefault(kind, _Learned(ADAPTER_S)).observe(extra_s - loads_s - usual_s, now)

    def served(self, engine_id: str, extra_s: float, now: float) -> None:
        """Learn from a prefill whose adapter had been loaded before: computing with an adapter takes longer, too."""
        self._with_adapter.setdefault(self.kinds.get(engine_id, ""), _Learned(0.0)).observe(extra_s, now)

    def _forget(self, now: float) -> None:
        # A tier measured as slow would otherwise never be used, and so never be measured, again.
        oldest = now - FORGOTTEN_AFTER_S
        self._tiers = {name: known for name, known in self._tiers.items() if known.used_at > oldest}
        self._adapters = {kind: known for kind, known in self._adapters.items() if known.used_at > oldest}
