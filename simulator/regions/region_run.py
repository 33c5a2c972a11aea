"""One run: a workload under a policy for a limited time, and its results."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import msgspec
from msgspec.structs import replace

from routing.regions.sovereignty import ALLOW_ALL, SovereigntyDocument
from simulator.engine_models.chunked import ChunkedEngine
from simulator.engine_models.engine_profile import EngineProfile, profile_named
from simulator.regions.clients import RegionClient
from simulator.regions.hosted_engine import HostedEngine, pooled_engines
from simulator.regions.network import REGIONS, RegionNetwork, links
from simulator.regions.policies import POLICIES
from simulator.regions.region_report import RegionReport, report_of
from simulator.regions.region_request import BLOCK_TOKENS, RegionRequest
from simulator.regions.simulated_gateway import HEARTBEAT_S, SimulatedGateway
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
    loss: float = 0.0
    """Share of the messages between regions that are lost."""
    tenants: tuple[str, ...] = ()
    """Tenants, assigned to clients in turn; if empty, one tenant that no rule names and every tenant that a rule
    names.
    """


class RegionRun:
    """The regions of one run. Mutable state: everything that changes over time, and the sent requests."""

    def __init__(self, spec: RegionSpec) -> None:
        workload, system = WORKLOADS[spec.workload], POLICIES[spec.policy]
        self.spec = spec
        self.clock = VirtualClock()
        self.requests: list[RegionRequest] = []
        self._system = system
        ways = links(0.0 if system.pooled else spec.rtt_scale, spec.regions)
        self._network = RegionNetwork(self.clock, ways, loss=spec.loss, seed=spec.seed)
        self._profile = engine_profile(spec.kv_tokens, spec.engine_speed)
        self.engines = self._make_engines(spec.replicas or workload.replicas)
        self.gateways = self._make_gateways()
        self.clients = self._make_clients(spec.clients or workload.clients)

    def _make_engines(self, replicas: Sequence[int]) -> list[HostedEngine]:
        counts = zip(self.spec.regions, replicas, strict=True)
        names = [(region, number) for region, count in counts for number in range(count)]
        pooled = pooled_engines(self._profile, len(names)) if self._system.pooled else []
        models: Sequence[ChunkedEngine] = pooled or [ChunkedEngine(self._profile) for _ in names]
        engines = [
            # Named in the order of the regions, because the first engine wins the ties of some rules.
            HostedEngine(f"{at:03} {region}-{number}", region, model, self.clock)
            for at, ((region, number), model) in enumerate(zip(names, models, strict=True))
        ]
        for engine in engines if pooled else ():
            engine.sharing = engines
        return engines

    def _make_gateways(self) -> list[SimulatedGateway]:
        system, served = self._system, {engine.region for engine in self.engines}
        # A gateway without engines forwards whatever its rules allow.
        regions = [region for region in self.spec.regions if system.forwards or region in served]
        gateways = [
            SimulatedGateway(
                region,
                system,
                self._profile,
                [engine for engine in self.engines if system.central or engine.region == region],
                self.clock,
                self._network,
                sovereignty=self.spec.sovereignty,
                answered=self._answer,
            )
            for region in (regions[:1] if system.central else regions)
        ]
        for number, gateway in enumerate(gateways):
            gateway.meet([other for other in gateways if self._system.forwards and other is not gateway])
            gateway.start(HEARTBEAT_S * number / len(gateways))
        return gateways

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
        request.request_id = str(len(self.requests))
        self.requests.append(request)
        entry = self._entry(request)
        if entry is not None:
            request.entry_region = entry.region
            request.way_back_s = self._network.delay(entry.region, request.region)
            self.clock.after(self._network.delay(request.region, entry.region), entry.arrive, request)

    def _entry(self, request: RegionRequest) -> SimulatedGateway | None:
        """Return the nearest gateway, in the client's region if there is one; None if rules allow no other region.

        A single central gateway receives all requests, so rules cannot be enforced there.
        """
        if self._system.central:
            return self.gateways[0]
        allowed = [
            gateway
            for gateway in self.gateways
            if self.spec.sovereignty.verdict(request.tenant, request.region, gateway.region).allowed
        ]
        return min(allowed, key=lambda gateway: self._network.delay(request.region, gateway.region), default=None)

    def _answer(self, request: RegionRequest) -> None:
        """Send the end of the response from its first gateway to its client."""
        client = self.clients[request.client]
        back_s = self._network.delay(request.entry_region, request.region)
        self.clock.after(back_s, client.answered if request.first_token_s is not None else client.rejected, request)

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


def engine_profile(kv_tokens: int, speed: float) -> EngineProfile:
    """Return the profile of the study's engine with another memory and speed."""
    study = profile_named("l4-8b")
    return replace(
        study,
        block_tokens=BLOCK_TOKENS,
        num_blocks=kv_tokens // BLOCK_TOKENS,
        prefill_base_s=study.prefill_base_s / speed,
        prefill_per_token_s=study.prefill_per_token_s / speed,
        step_base_s=study.step_base_s / speed,
        step_per_sequence_s=study.step_per_sequence_s / speed,
        step_per_context_token_s=study.step_per_context_token_s / speed,
    )
