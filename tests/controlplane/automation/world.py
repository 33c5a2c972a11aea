"""A pool with a clock set by the test: engines, reports of gateways and the prober, and a policy."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from controlplane.automation.observation import FleetObservation
from controlplane.automation.rounds import RoundResult, Work, run_rounds
from controlplane.fleet.models.engine import Engine
from controlplane.fleet.models.pool import Pool
from controlplane.platform.live_fleet.samples import FleetSamples
from controlplane.policies.models.policy import Policy
from controlplane.policies.models.policy_version import PolicyVersion
from gateway.bus.bus import InProcessBus
from gateway.contracts.engine_report import EngineReport, encode_report, load_topic
from gateway.contracts.fleet_sample import TOPIC, EngineCounts, EngineSample, FleetSample, PoolSample, PoolTotals
from routing.values.load_cv import load_cv

START = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)
QUIET = EngineCounts(
    dispatched=0,
    prefilling=0,
    streaming=0,
    first_tokens_total=0,
    chunks_total=0,
    longest_prefill_s=0.0,
    failures_in_row=0,
    slowness=None,
    slowness_samples=0,
    tpot_s=None,
    tpot_samples=0,
    event_gaps_total=0,
)


class World:
    """A pool and its clock. Mutable: the reports of each engine, and the totals of the pool."""

    def __init__(self, pool: Pool, engines: int) -> None:
        self.pool = pool
        self.now = START
        self.bus = InProcessBus()
        self.observed = FleetObservation(self.bus, FleetSamples(self.bus), clock=self.unix)
        self.reported: dict[str, dict[str, Any]] = {}
        self.totals = {"requests": 0, "on_time": 0, "work_s": 0.0}
        self.queued_s = 0.0
        for number in range(engines):
            self.add(f"e-{number + 1:02d}")

    def add(self, name: str, **fields: Any) -> Engine:
        """Register a healthy engine of the pool."""
        port = 21_000 + 3 * Engine.objects.count()
        url = f"http://127.0.0.1:{port}"
        engine = Engine.objects.create(pool=self.pool, name=name, engine_id=name, url=url, connect_url=url, **fields)
        Engine.objects.filter(pk=engine.pk).update(registered_at=self.now)
        return engine

    def policy(self, **automation: Any) -> None:
        """Publish an automation document."""
        policy: Policy = self.pool.policy
        number = policy.versions.count() + 1
        policy.live_version = PolicyVersion.objects.create(
            policy=policy, number=number, routing_document={}, automation_document=automation
        )
        policy.save()

    def say(self, name: str, **fields: Any) -> None:
        """Change fields of one engine's report, sample, and counts."""
        self.reported[name] = {**self.reported.get(name, {}), **fields}

    def unix(self) -> float:
        """Return the current time in Unix seconds."""
        return self.now.timestamp()

    def forget(self) -> None:
        """Observe from an empty state, as a process that has just started."""
        self.observed.stop()
        self.observed = FleetObservation(self.bus, FleetSamples(self.bus), clock=self.unix)

    def clock(self) -> datetime:
        """Return the current time."""
        return self.now

    def pass_time(
        self, seconds: float = 1.0, *, step_s: float = 1.0, after_step: Callable[[], None] | None = None
    ) -> None:
        """Advance the clock in steps, and publish a report and a sample at each."""
        end = self.now + timedelta(seconds=seconds)
        while self.now < end:
            self.now += timedelta(seconds=step_s)
            self.publish()
            if after_step is not None:
                after_step()

    def publish(self) -> None:
        """Publish one report per engine and one sample of all."""
        at = self.now.timestamp()
        samples = []
        for engine in Engine.objects.filter(pool=self.pool).order_by("name"):
            said = self.reported.get(engine.engine_id, {})
            report = {"reachable": True, "healthy": True, "reason": "", "running": 0, "waiting": 0}
            report |= {key: value for key, value in said.items() if key in EngineReport.__struct_fields__}
            self.bus.publish(
                load_topic(engine.engine_id), encode_report(EngineReport(engine_id=engine.engine_id, at=at, **report))
            )
            samples.append(self._sample(engine, said))
        totals = PoolTotals(rejected=0, prompt_tokens=0, recomputed_tokens=0, **self.totals)
        pool = PoolSample(
            pool_id=self.pool.slug,
            name="",
            region="",
            served_model="",
            placement="",
            order="",
            policy_version=1,
            ttft_slo_s=5.0,
            tokens_per_s=1.0,
            unbound=0,
            unbound_tokens=0,
            oldest_wait_s=0.0,
            load_cv=load_cv([10_000 * item.in_flight_s for item in samples]),
            requests_per_s=0.0,
            prompt_tokens_per_s=0.0,
            ttft_p50_s=None,
            ttft_p90_s=None,
            ttft_p99_s=None,
            on_time_share=None,
            hit_share=None,
            late=0,
            totals=totals,
            queued_s=self.queued_s,
        )
        sample = FleetSample(seq=1, at=at, window_s=15.0, snapshot_version=1, engines=tuple(samples), pools=(pool,))
        self.bus.publish(TOPIC, msgspec.msgpack.encode(sample))

    def run(self, job: str, work: Callable[..., RoundResult | None], every: timedelta) -> int:
        """Run the due rounds of a job, and return the number of stored rounds."""
        bound: Work = lambda turn: work(turn, observed=self.observed)  # noqa: E731 - binds the observation
        return run_rounds(job, every, bound, clock=self.clock)

    def _sample(self, engine: Engine, said: dict[str, Any]) -> EngineSample:
        counts = {key: value for key, value in said.items() if key in EngineCounts.__struct_fields__}
        return EngineSample(
            engine_id=engine.engine_id,
            name=engine.name,
            pool_id=self.pool.slug,
            incarnation=1,
            state=said.get("state", "serving"),
            reason="",
            since=0.0,
            in_flight_tokens=0,
            in_flight_s=said.get("in_flight_s", 0.0),
            running=said.get("in_flight", 0),
            bound=said.get("bound", 0),
            kv_usage=None,
            prompt_tokens_total=0,
            cached_tokens_total=0,
            index_trust="exact",
            report_age_s=0.1,
            counts=msgspec.structs.replace(QUIET, **counts),
        )
