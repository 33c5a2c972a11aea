"""One run: a workload under a policy for a limited time, and its results."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import msgspec

from routing.regions.sovereignty import ALLOW_ALL, SovereigntyDocument
from simulator.regions.balancer import PROBE_S, Balancer
from simulator.regions.batch_engine import BatchEngine, BatchEngineProfile, KvMemory
from simulator.regions.clients import RegionClient
from simulator.regions.network import REGIONS, network
from simulator.regions.policies import POLICIES
from simulator.regions.region_report import RegionReport, report_of
from simulator.regions.region_request import RegionRequest
from simulator.regions.workloads import WORKLOADS, ProgramSource
from simulator.virtual_clock import VirtualClock


class RegionSpec(msgspec.Struct, frozen=True):
    """The specification of a run. Clients and replicas are per region; None for the workload's defaults."""

    workload: str
    policy: str
    seed: int = 1
    clients: tuple[int, ...] | None = None
    replicas: tuple[int, ...] | None = None
    kv_tokens: int = 30_000
    engine_speed: float = 1.0
    rtt_scale: float = 1.0
    think_s: float = 0.0
    duration_s: float = 400.0
    warmup_s: float = 100.0
    regions: tuple[str, ...] = REGIONS
    sovereignty: SovereigntyDocument = ALLOW_ALL
    tenants: tuple[str, ...] = ()
    """Tenants, assigned to clients in turn; if empty, one tenant that no rule names and every tenant that a rule
    names.
    """


class RegionRun:
    """The regions of one run. Mutable state: everything that changes over time, and the sent requests."""

    def __init__(self, spec: RegionSpec) -> None:
        workload, policy = WORKLOADS[spec.workload], POLICIES[spec.policy]
        self.spec = spec
        self.clock = VirtualClock()
        self.requests: list[RegionRequest] = []
        self._policy = policy
        self._network = network(0.0 if policy.pooled else spec.rtt_scale, spec.regions)
        self.engines = self._make_engines(spec.replicas or workload.replicas)
        self.balancers = self._make_balancers()
        self._home = {known.engine: balancer for balancer in self.balancers for known in balancer.engines}
        self.clients = self._make_clients(spec.clients or workload.clients)

    def _make_engines(self, replicas: Sequence[int]) -> list[BatchEngine]:
        spec, profile = self.spec, BatchEngineProfile(speed=self.spec.engine_speed)
        shared = KvMemory(spec.kv_tokens * sum(replicas)) if self._policy.pooled else None
        engines: list[BatchEngine] = []
        for region, count in zip(spec.regions, replicas, strict=True):
            for number in range(count):
                memory = shared or KvMemory(spec.kv_tokens)
                name = f"{region}-{number + 1}"
                engines.append(BatchEngine(name, region, self.clock, memory, profile, self._ended))
        return engines

    def _make_balancers(self) -> list[Balancer]:
        policy = self._policy
        served = [region for region in self.spec.regions if any(engine.region == region for engine in self.engines)]
        balancers = [
            Balancer(
                region,
                policy.rule,
                policy.push_limit,
                self.clock,
                self._network,
                indexes_outputs=policy.indexes_outputs,
                publishes_prefixes=policy.publishes_prefixes,
                sovereignty=self.spec.sovereignty,
            )
            for region in (served[:1] if policy.central else served)
        ]
        for engine in self.engines:
            nearest = next((balancer for balancer in balancers if balancer.region == engine.region), balancers[0])
            nearest.join(engine)
        for number, balancer in enumerate(balancers):
            for other in balancers:
                if policy.forwards and other is not balancer:
                    balancer.meet(other)
            balancer.start(PROBE_S * number / len(balancers))
        return balancers

    def _make_clients(self, clients: Sequence[int]) -> list[RegionClient]:
        spec = self.spec
        source = ProgramSource(WORKLOADS[spec.workload], spec.regions, spec.seed)
        tenants = spec.tenants or ("", *spec.sovereignty.tenants)
        made: list[RegionClient] = []
        for region, count in zip(spec.regions, clients, strict=True):
            for number in range(count):
                rng = Random(f"{spec.seed} {region} {number}")
                think_s, index, tenant = spec.think_s, len(made), tenants[number % len(tenants)]
                made.append(
                    RegionClient(
                        region, number, index, source, self.clock, self._send, think_s=think_s, rng=rng, tenant=tenant
                    )
                )
        return made

    def _send(self, request: RegionRequest) -> None:
        self.requests.append(request)
        entry = self._entry(request)
        if entry is None:
            return
        request.way_back_s = self._network.delay(entry.region, request.region)
        self.clock.after(self._network.delay(request.region, entry.region), entry.arrive, request)

    def _entry(self, request: RegionRequest) -> Balancer | None:
        """Return the nearest balancer, in the client's region if there is one; None if rules allow no other region.

        A single central balancer receives all requests, so rules cannot be enforced there.
        """
        if self._policy.central:
            return self.balancers[0]
        allowed = [
            balancer
            for balancer in self.balancers
            if self.spec.sovereignty.verdict(request.tenant, request.region, balancer.region).allowed
        ]
        return min(allowed, key=lambda balancer: self._network.delay(request.region, balancer.region), default=None)

    def _ended(self, request: RegionRequest, engine: BatchEngine) -> None:
        home = self._home[engine]
        self.clock.after(self._network.delay(engine.region, home.region), home.ended, request, engine)
        self.clock.after(request.way_back_s, self.clients[request.client].answered, request)

    def run(self) -> RegionReport:
        """Run to the end and return the report."""
        spec = self.spec
        for client in self.clients:
            client.start()
        self.clock.run(spec.warmup_s)
        before = sum(engine.produced for engine in self.engines)
        self.clock.run(spec.duration_s)
        produced = sum(engine.produced for engine in self.engines) - before
        counted = [request for request in self.requests if request.sent_s >= spec.warmup_s]
        tokens_per_s = produced / (spec.duration_s - spec.warmup_s)
        return report_of(spec.policy, spec.workload, spec.seed, tokens_per_s, counted, spec.duration_s)
