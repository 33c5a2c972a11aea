"""A fake fleet: plausible samples with a hot engine, a lost one, and a draining one.

Deterministic for a seed. Call `sample_at(t)` with ascending seconds since the start.
"""

from __future__ import annotations

import math
import random
import statistics
from dataclasses import dataclass

from gateway.contracts.fleet_sample import EngineSample, FleetSample, PoolSample

PREFILL_TOKENS_PER_S = 12_000.0
TTFT_SLO_S = 3.5
HOT_AT, HOT_PEAK, HOT_OVER = 105.0, 200.0, 300.0
LOST_AT, LOST_UNTIL = 172.0, 232.0
DRAIN_AT = 196.0
PUBLISH_AT = 224.0


def smooth(low: float, high: float, value: float) -> float:
    """Return a smooth rise from 0 at `low` to 1 at `high`."""
    share = max(0.0, min(1.0, (value - low) / (high - low)))
    return share * share * (3 - 2 * share)


@dataclass(slots=True)
class FakeEngine:
    """The slowly varying load of one engine."""

    name: str
    pool: int
    base: float
    level: float = 0.0
    burst: float = 0.0
    tokens: float = 0.0
    prompt_total: int = 0
    cached_total: int = 0
    predicted_total: int = 0
    incarnation: int = 1


class FakeFleet:
    """`engines` engines in `pools` pools. With `events`, one is hot, one is lost, and one drains."""

    def __init__(
        self, engines: int = 8, pools: int = 2, *, events: bool = True, lost_until: float = LOST_UNTIL, seed: int = 7
    ) -> None:
        self._rng = random.Random(seed)
        first = math.ceil(engines * 0.6) if pools > 1 else engines
        self.engines = [
            FakeEngine(f"e-{number:02d}", 0 if number <= first else 1, self._rng.uniform(0.75, 1.4) * 7000)
            for number in range(1, engines + 1)
        ]
        self.pools = pools
        self.events = events
        self._lost_until = lost_until
        self._hot, self._drain, self._lost = max(0, first - 2), min(2, first - 1), min(engines - 1, first + 1)
        self._seq = 0
        self._last_t: float | None = None

    def sample_at(self, t: float, start: float) -> FleetSample:
        """Return the sample at second `t` after the start of the fleet at Unix second `start`."""
        step = 0.5 if self._last_t is None else max(0.01, t - self._last_t)
        self._last_t = t
        self._seq += 1
        for index, engine in enumerate(self.engines):
            self._wander(engine, step)
            engine.tokens = self._load(index, engine, t)
            prompt = int(engine.base * step * self._rng.uniform(0.6, 1.4))
            engine.prompt_total += prompt
            engine.cached_total += int(prompt * (0.71 + 0.06 * math.sin(t / 23 + index)))
            engine.predicted_total += int(prompt * (0.73 + 0.05 * math.sin(t / 23 + index)))
        samples = tuple(self._engine(index, engine, t, start) for index, engine in enumerate(self.engines))
        return FleetSample(
            seq=self._seq,
            at=start + t,
            window_s=60.0,
            snapshot_version=12,
            engines=samples,
            pools=tuple(self._pool(pool, samples, t) for pool in range(self.pools)),
        )

    def _wander(self, engine: FakeEngine, step: float) -> None:
        keep = math.exp(-step / 9)
        engine.level = keep * engine.level + math.sqrt(1 - keep * keep) * self._rng.gauss(0, 1)
        engine.burst *= math.exp(-step / 7)
        if self._rng.random() < step * 0.018:
            engine.burst += self._rng.random() * 22_000

    def _load(self, index: int, engine: FakeEngine, t: float) -> float:
        tokens = engine.base * (0.5 if engine.pool else 1.0) * math.exp(0.6 * engine.level - 0.2) + engine.burst
        if not self.events:
            return tokens
        heat = smooth(HOT_AT, HOT_PEAK, t) * (1 - smooth(HOT_PEAK + 30, HOT_OVER, t))
        if index == self._hot:
            return tokens * (1 - 0.6 * heat) + 124_000 * heat**1.4
        if index == self._lost and LOST_AT <= t < self._lost_until:
            return 0.0
        if index == self._drain and t >= DRAIN_AT:
            left = math.exp(-(t - DRAIN_AT) / 20)
            return tokens * left if left > 0.06 else 0.0
        return tokens

    def _state(self, index: int, engine: FakeEngine, t: float) -> tuple[str, str, float]:
        if self.events:
            if index == self._lost and LOST_AT <= t < self._lost_until:
                return "lost", "3 connects rejected; a direct probe runs every second", LOST_AT
            if index == self._lost and self._lost_until <= t < self._lost_until + 20:
                return "starting", "answers again; warming up", self._lost_until
            if index == self._drain and t >= DRAIN_AT:
                return "draining", "drained by an operator", DRAIN_AT
            if index == self._hot and engine.tokens > 42_000:
                reason = "71 % of the prefill bound here shares one prefix that only this engine holds"
                return "hot", reason, HOT_AT + 40
        return "serving", "", 0.0

    def _engine(self, index: int, engine: FakeEngine, t: float, start: float) -> EngineSample:
        state, reason, since = self._state(index, engine, t)
        lost = state == "lost"
        wait_s = engine.tokens / PREFILL_TOKENS_PER_S
        if state == "starting":
            engine.incarnation = 2
        return EngineSample(
            engine_id=f"engine-{engine.name}",
            name=engine.name,
            pool_id=f"pool-{engine.pool}",
            incarnation=engine.incarnation,
            state=state,
            reason=reason,
            since=start + since,
            in_flight_tokens=round(engine.tokens),
            in_flight_s=wait_s,
            running=0 if lost or not engine.tokens else round(6 + 9 * min(2.5, wait_s)),
            bound=_bound(wait_s, lost=lost),
            oldest_bound_s=0.7 * max(0.0, wait_s - 0.8) if _bound(wait_s, lost=lost) else 0.0,
            kv_usage=None if lost else min(0.98, 0.62 + 0.1 * engine.level * 0.4 + 0.18 * min(1, wait_s / 8)),
            prompt_tokens_total=engine.prompt_total,
            cached_tokens_total=engine.cached_total,
            predicted_tokens_total=engine.predicted_total,
            index_trust="blind" if lost else "degraded" if state == "starting" else "exact",
            report_age_s=t - LOST_AT + 0.1 if lost else self._rng.uniform(0.03, 0.12),
        )

    def _pool(self, pool: int, engines: tuple[EngineSample, ...], t: float) -> PoolSample:
        mine = [engine for engine in engines if engine.pool_id == f"pool-{pool}"]
        loads = [engine.in_flight_tokens for engine in mine if engine.state in ("serving", "hot")] or [0]
        mean = statistics.fmean(loads)
        worst = max((engine.in_flight_s for engine in mine), default=0.0)
        late_share = min(0.6, max(0.0, (worst - 2.8) / 26)) + self._rng.random() * 0.004
        unbound = round(max(0.0, 7 * (worst - 3.2)) * self._rng.uniform(0.85, 1.15)) if worst > 3.2 else 0
        if not unbound and self._rng.random() < 0.08:
            unbound = self._rng.randint(1, 4)
        requests_per_s = len(mine) * 3.4 * (1 + 0.04 * math.sin(t / 17) + self._rng.gauss(0, 0.01))
        p90 = 0.9 + 0.16 * worst + self._rng.random() * 0.1
        waited = min(0.9, 0.04 * worst)
        rejected = max(0.0, worst - 6.0)
        return PoolSample(
            pool_id=f"pool-{pool}",
            name=("chat-70b", "agents-32b")[pool],
            region="eu-west",
            served_model=("llama-3.3-70b-instruct", "qwen3-32b")[pool],
            placement=("least_cost", "dual_map")[pool],
            order=("late_last", "fifo")[pool],
            policy_version=(42 if self.events and t >= PUBLISH_AT else 41, 17)[pool],
            ttft_slo_s=TTFT_SLO_S,
            tokens_per_s=PREFILL_TOKENS_PER_S,
            unbound=unbound,
            unbound_tokens=unbound * 6200,
            oldest_wait_s=0.05 * unbound,
            load_cv=statistics.pstdev(loads) / mean if mean else 0.0,
            requests_per_s=requests_per_s,
            prompt_tokens_per_s=requests_per_s * 8300,
            ttft_p50_s=0.42 + 0.02 * worst + self._rng.random() * 0.03,
            ttft_p90_s=p90,
            ttft_p99_s=p90 * 2.1,
            on_time_share=1 - late_share,
            hit_share=0.70 + 0.02 * math.sin(t / 31 + pool) + self._rng.gauss(0, 0.004),
            late=round(late_share * requests_per_s * 60),
            bound=sum(engine.bound for engine in mine),
            dispatched_at_once_per_s=requests_per_s * (1 - waited),
            dispatched_waited_per_s=requests_per_s * waited,
            queue_wait_mean_s=0.12 * worst,
            queue_wait_p90_s=0.4 * worst,
            migrations_per_s=max(0.0, 0.3 * (worst - 3.0)) if pool else 0.0,
            overtaken_per_s=0.1 * requests_per_s * waited,
            rejections_per_s={"infeasible": 0.3 * rejected, "queue_full": 0.1 * rejected} if rejected else {},
        )


def _bound(wait_s: float, *, lost: bool) -> int:
    return 0 if lost else round(3.2 * max(0.0, wait_s - 0.8))
