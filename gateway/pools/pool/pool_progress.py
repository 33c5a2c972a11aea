"""A pool's demand since the gateway started, and each engine's progress."""

from __future__ import annotations

import time
from collections.abc import Callable

from msgspec.structs import replace

from gateway.contracts.fleet_sample import EngineFaults
from gateway.pools.engines.engine_progress import EngineProgress
from gateway.pools.traffic.hot_prefixes import HotPrefixes
from routing.values.decision import Decision

_NO_FAULTS = EngineFaults()


class PoolProgress:
    """Follows dispatched requests. Mutable: the totals, and each engine's EngineProgress and EngineFaults."""

    def __init__(self, vouches: Callable[[float, float], bool] = lambda _since_s, _now: True) -> None:
        self._vouches = vouches
        self.work_s = 0.0
        """Engine seconds of uncached prefill in dispatched requests."""
        self.prompt_tokens = 0
        self.recomputed_tokens = 0
        """Prompt tokens computed on one engine although another candidate was believed to hold them."""
        self.prefixes = HotPrefixes()
        self._engines: dict[str, EngineProgress] = {}
        self._faults: dict[str, EngineFaults] = {}
        self._dispatched: dict[str, tuple[int, int]] = {}
        """Engine id → prompt tokens dispatched to it, and those of them that it was believed to hold."""

    def engine(self, engine_id: str) -> EngineProgress:
        """Return the engine's progress, which starts now for a new engine."""
        progress = self._engines.get(engine_id)
        if progress is None:
            progress = self._engines[engine_id] = EngineProgress(self._vouches)
        return progress

    def faults(self, engine_id: str) -> EngineFaults:
        """Return the engine's faults, without its evictions."""
        return self._faults.get(engine_id, _NO_FAULTS)

    def dispatched_tokens(self, engine_id: str) -> tuple[int, int]:
        """Return the prompt tokens dispatched to the engine, and those of them that it was believed to hold."""
        return self._dispatched.get(engine_id, (0, 0))

    def restarted(self, engine_id: str) -> None:
        """Count a new process of the engine."""
        faults = self.faults(engine_id)
        self._faults[engine_id] = replace(faults, restarts=faults.restarts + 1)

    def late_tokenizer(self, engine_id: str, took_s: float) -> None:
        """Count a call to the engine's tokenizer that failed or was late."""
        faults = self.faults(engine_id)
        self._faults[engine_id] = replace(
            faults,
            tokenizer_late=faults.tokenizer_late + 1,
            tokenizer_late_s=faults.tokenizer_late_s + took_s,
        )

    def forget(self, engine_id: str, *, left: bool = False) -> None:
        """Reset the progress of an engine that restarted, and the faults, too, of one that left."""
        self._engines.pop(engine_id, None)
        if left:
            self._faults.pop(engine_id, None)
            self._dispatched.pop(engine_id, None)

    def dispatched(self, decision: Decision, now: float, prefix: int | None = None, tracked: bool = True) -> None:
        """Record a dispatch. `prefix` is its affinity key if the placement keeps prefixes on a few engines.

        An untracked dispatch is no evidence about its engine, because the request may never have reached it.
        """
        self.work_s += decision.compute_s
        self.prompt_tokens += decision.prompt_tokens
        best = hit_tokens = decision.hit_tokens
        prompts, hits = self._dispatched.get(decision.engine_id, (0, 0))
        self._dispatched[decision.engine_id] = prompts + decision.prompt_tokens, hits + hit_tokens
        for candidate in decision.candidates:
            best = max(best, candidate.hit_tokens)
        self.recomputed_tokens += best - hit_tokens
        if prefix is not None:
            self.prefixes.dispatched(prefix, decision, best - hit_tokens, now)
        if tracked:
            self.engine(decision.engine_id).dispatched(decision.decision_id, decision.compute_s, now)

    def moved(self, decision: Decision, now: float, *, prefilled: bool) -> None:
        """Record that a request moved to its decode engine. `prefilled`: the prefill engine has completed its part."""
        if decision.pair is None:
            return
        first, name = self.engine(decision.engine_id), decision.decision_id
        if prefilled:
            first.first_token(name, now)
        first.dropped(name)
        # The duration of the KV transfer is not measured here, so no time is expected.
        self.engine(decision.pair.engine_id).dispatched(name, 0.0, now)

    def _at(self, decision: Decision) -> EngineProgress:
        """Return the engine that has the request now."""
        if decision.pair is not None:
            second = self.engine(decision.pair.engine_id)
            if second.follows(decision.decision_id):
                return second
        return self.engine(decision.engine_id)

    def first_token(self, decision: Decision, now: float) -> None:
        """Record the first token of a dispatched request."""
        self._at(decision).first_token(decision.decision_id, now)

    def completed(self, decision: Decision, output_tokens: int | None, now: float) -> None:
        """Record the end of an answer."""
        self._at(decision).completed(decision.decision_id, output_tokens, now)

    def reported(self, decision: Decision, tenant_id: str, *, failed: bool) -> None:
        """Record a tenant's report of a request that the gateway did not see."""
        self._at(decision).reported(tenant_id, failed=failed)

    def failed(self, decision: Decision, *, begun: bool) -> None:
        """Count a request that its engine did not complete. `begun`: its answer had begun."""
        if not decision.engine_id:
            return
        pair = decision.pair
        engine_id = pair.engine_id if pair is not None and begun else decision.engine_id
        faults = self.faults(engine_id)
        self._faults[engine_id] = replace(
            faults,
            broken=faults.broken + begun,
            unanswered=faults.unanswered + (not begun),
            failed_at=time.time(),
        )

    def dropped(self, decision: Decision, *, failed: bool) -> None:
        """Record the end of a request without an answer. `failed`: its engine is at fault. Unbound requests are
        ignored.
        """
        if decision.engine_id:
            self._at(decision).dropped(decision.decision_id, failed=failed)
