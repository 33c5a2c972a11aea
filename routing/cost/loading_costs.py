"""Cost of the loads before a prefill: KV blocks from an engine's lower tiers, and LoRA adapters.

The costs are learned per kind of engine, from the time beyond the expected computation in prefills that included a
load. Before a kind's first such prefills, a tier's prior is a share of the time to compute the same tokens: KV bytes
and time per token both grow with the model, so the share holds for small and large models. If no prefill has confirmed
a kind's figures for a while, the priors apply again; a slow tier would otherwise never be used again.
"""

from __future__ import annotations

from collections.abc import Mapping

from kvstore.index.lower_tiers import CPU, DISK, EXTERNAL
from routing.cost.nonnegative_fit import RunningMedian

_SHARE = 0.2
"""Weight of the latest load. The first loads weigh more, because the prior is a guess."""
_MOST = 8.0
"""Limit of the ratio of a load's time to its expected time, in both directions."""


class LoadRate:
    """Latency and time per byte of one link, learned from the loads that engines report.

    The link is the whole path from the node manager to the engine's own memory, including the copy into the engine.
    Mutable: each load corrects both in proportion to their expected parts.
    """

    __slots__ = ("latency_s", "loads", "s_per_byte")

    def __init__(self, latency_s: float, s_per_byte: float) -> None:
        if latency_s <= 0 or s_per_byte <= 0:
            raise ValueError("a link has a latency and a rate above 0")
        self.latency_s, self.s_per_byte = latency_s, s_per_byte
        self.loads = 0

    def seconds(self, size: float) -> float:
        """Return the expected seconds of a load of `size` bytes."""
        return self.latency_s + size * self.s_per_byte

    def observe(self, size: int, seconds: float) -> None:
        """Learn from one load. Loads without bytes or time are ignored."""
        if size <= 0 or seconds <= 0:
            return
        self.loads += 1
        expected_s = self.seconds(size)
        # Limited, so that one load that was held up does not undo what many have shown. As a power, so that twice as
        # slow and twice as fast weigh the same: loads that wait behind others are common where links are busy.
        share = max(_SHARE, 1.0 / (self.loads + 1))
        error = min(max(seconds / expected_s, 1 / _MOST), _MOST) ** share - 1.0
        waiting = self.latency_s / expected_s
        self.latency_s *= 1.0 + error * waiting
        self.s_per_byte *= 1.0 + error * (1.0 - waiting)


SHARE_OF_COMPUTE = {CPU: 0.125, DISK: 0.5, EXTERNAL: 0.8}
"""An 8B model on one H100 computes a token in about 30 µs; its 128 KiB of KV take 7 µs at 20 GB/s, 43 µs at 3 GB/s."""
ADAPTER_S = 0.02
"""Time to copy an adapter from the engine's CPU memory. Adapters on disk take longer, which is learned."""
FORGOTTEN_AFTER_S = 600.0
_LOADS, _PRIORS = 31, 3


class _Learned:
    """The median of the latest loads, including the prior. Mutable.

    Prefill times often vary by more than a load takes, mostly upwards, so a single load can even appear to take
    negative time.
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
    """Load costs of one pool. Mutable: `kinds`, and the figures learned per (kind, tier) and per kind."""

    def __init__(self) -> None:
        self.kinds: Mapping[str, str] = {}
        """Engine id → its kind, as declared in the topology."""
        self._tiers: dict[tuple[str, str], _Learned] = {}
        self._adapters: dict[str, _Learned] = {}
        self._with_adapter: dict[str, _Learned] = {}

    def tier_s(self, engine_id: str, tier: str, tokens: int, token_s: float) -> float:
        """Return the expected seconds to load `tokens` from a tier, if computing one token takes `token_s`."""
        learned = self.token_s(engine_id, tier)
        return tokens * (SHARE_OF_COMPUTE[tier] * token_s if learned is None else learned)

    def token_s(self, engine_id: str, tier: str) -> float | None:
        """Return the learned seconds to load one token from a tier, None if only the prior is known."""
        known = self._tiers.get((self.kinds.get(engine_id, ""), tier))
        return None if known is None else known.value

    def adapter_s(self, engine_id: str) -> float:
        """Return the expected seconds to load an adapter."""
        learned = self.learned_adapter_s(engine_id)
        return ADAPTER_S if learned is None else learned

    def learned_adapter_s(self, engine_id: str) -> float | None:
        """Return the learned seconds to load an adapter, None if only the prior is known."""
        known = self._adapters.get(self.kinds.get(engine_id, ""))
        return None if known is None else known.value

    def loaded(
        self, engine_id: str, tiers: Mapping[str, int], adapter: bool, extra_s: float, token_s: float, now: float
    ) -> None:
        """Learn from a prefill that loaded tokens by tier, or an adapter, and took `extra_s` longer for it.

        If it loaded from tiers and an adapter, each learns from the time that remains after the others' expected time.
        Tiers share their part in proportion to their expected times.
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
        """Learn from a prefill with an adapter that was already loaded: computing with an adapter also takes longer."""
        self._with_adapter.setdefault(self.kinds.get(engine_id, ""), _Learned(0.0)).observe(extra_s, now)

    def _forget(self, now: float) -> None:
        # A tier measured as slow would otherwise never be used, and so never be measured, again.
        oldest = now - FORGOTTEN_AFTER_S
        self._tiers = {name: known for name, known in self._tiers.items() if known.used_at > oldest}
        self._adapters = {kind: known for kind, known in self._adapters.items() if known.used_at > oldest}
