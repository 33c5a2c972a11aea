"""Requests within both objectives on separate and on shared engines (Mooncake §7.2, Figs. 1 and 13).

Also the copies of cached blocks over time (§7.3.3, Fig. 18). TBT is given in both measures: as in §7.1, the mean of the
longest tenth of a request's gaps, and the mean of all.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from statistics import fmean
from typing import Any

import msgspec
from typing_extensions import override

from bench.evidence.cells import SLO_TTFT_S, run_all
from bench.evidence.store import Result, Row, measured
from bench.evidence.traces import MAX_INPUT, WARMUP, workload
from routing.policy.policy_document import Stage
from routing.router import Router
from simulator.baselines.registry import PLACEMENTS
from simulator.engine_models.chunked import ChunkedEngine
from simulator.engine_models.engine_events import BlocksRemoved, BlocksStored, EngineEvent, FirstTokenEvent, Token
from simulator.engine_models.engine_profile import EngineProfile
from simulator.engine_models.fifo_engine import colocated
from simulator.engine_models.pd import DecodeRole, PrefillRole
from simulator.engine_models.reference import ReferenceEngine
from simulator.engine_models.simulated_engine import SimulatedEngine
from simulator.fleet.block_transfer import BlockTransfers
from simulator.fleet.disaggregated_fleet import DisaggregatedFleet
from simulator.fleet.engine_slots import Station
from simulator.fleet.fleet_changes import EngineJoins
from simulator.fleet.fleet_simulation import FleetSimulation
from simulator.runs.simulation_run import RunSpec, engine_names, evaluation_policy, roles_of
from simulator.workloads.arrivals import FixedArrivals
from simulator.workloads.prepared_workload import Workload

ENGINES, PREFILL = 16, 8
RATES = {"conversation": 12.0, "toolagent_like": 20.0}
"""Requests per second: about nine tenths of what the prefill engines can take."""
TTFT_S, TBT_S = 30.0, (0.1, 0.2, 0.3)
CHUNK_TOKENS = 512
"""vLLM 0.5.1's default with chunked prefill."""
MOONCAKE, CACHED, CHUNKED, PLAIN = "mooncake", "prefix cache", "chunked prefill", "plain"
SYSTEMS = (MOONCAKE, CACHED, CHUNKED, PLAIN)
RANKS = (10, 100, 1_000, 10_000)
SAMPLE_S = 30
COPY_ENGINES, COPY_RATES = 8, {"conversation": 10.0, "toolagent_like": 18.0}


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """One run: `system` of a fleet, or `copies`."""

    kind: str
    trace: str
    system: str = MOONCAKE


class _Gaps(FleetSimulation):
    """A fleet that also records the gaps between each request's tokens. Mutable: `gaps`, and the last tokens."""

    gaps: defaultdict[str, list[float]]
    last_s: dict[str, float]

    @override
    def _take_in(self, station: Station, events: list[EngineEvent]) -> None:
        for event in events:
            if isinstance(event, Token):
                self.gaps[event.request_id].append(event.at_s - self.last_s[event.request_id])
            if isinstance(event, Token | FirstTokenEvent):
                self.last_s[event.request_id] = event.at_s
        super()._take_in(station, events)


class _SeparateEngines(_Gaps, DisaggregatedFleet):
    """Prefill and decode engines."""


class _Copies(FleetSimulation):
    """A fleet that also counts the copies of each block. Mutable: `copies`."""

    copies: Counter[int]

    @override
    def _take_in(self, station: Station, events: list[EngineEvent]) -> None:
        for event in events:
            if isinstance(event, BlocksStored):
                self.copies.update(event.keys)
            elif isinstance(event, BlocksRemoved):
                self.copies.subtract(event.keys)
        super()._take_in(station, events)


def measure(jobs: int) -> Result:
    """Run all systems on both traces, and count copies."""
    asked = [
        *(Asked(kind="capacity", trace=trace, system=system) for trace in RATES for system in SYSTEMS),
        *(Asked(kind="copies", trace=trace) for trace in COPY_RATES),
    ]
    settings = {
        "engines": ENGINES,
        "prefill": PREFILL,
        "qps": RATES,
        "ttft_s": TTFT_S,
        "gap_s": TBT_S,
        "chunk_tokens": CHUNK_TOKENS,
        "copies": {"engines": COPY_ENGINES, "qps": COPY_RATES, "sample_s": SAMPLE_S, "ranks": RANKS},
        "warmup": WARMUP,
    }
    rows = run_all(run_one, asked, jobs=jobs, title="effective capacity")
    return measured(name="effective_capacity", settings=settings, rows=rows)


def run_one(asked: Asked) -> Row:
    """Run one system, or count copies."""
    named: Row = msgspec.to_builtins(asked)
    return named | (capacity(asked) if asked.kind == "capacity" else copies(asked.trace))


def capacity(asked: Asked) -> Row:
    """Return the shares of requests within both objectives, by limit of TBT and by measure."""
    rows = workload(asked.trace)
    if asked.system in (CHUNKED, PLAIN):
        # Without a prefix cache, as the paper tests them: no two requests share a block.
        alone = [
            msgspec.structs.replace(row, hash_ids=tuple((number << 20) + at for at in range(len(row.hash_ids))))
            for number, row in enumerate(rows.rows)
        ]
        rows = Workload(alone, max_input=MAX_INPUT)
    simulation = _fleet(asked.system, FixedArrivals(rows.arrivals(RATES[asked.trace], TTFT_S)))
    simulation.gaps, simulation.last_s = defaultdict(list), {}
    simulation.run()
    records = simulation.history[WARMUP:]
    longest, means = [], []
    for record in records:
        gaps = sorted(simulation.gaps[record.request.request_id], reverse=True)
        soon = record.ttft_s is not None and record.ttft_s <= TTFT_S and record.finished_s is not None
        longest.append(fmean(gaps[: -(-len(gaps) // 10)] or [0.0]) if soon else None)
        means.append(fmean(gaps or [0.0]) if soon else None)
    return {
        "longest_tenth": [_share(longest, limit) for limit in TBT_S],
        "mean": [_share(means, limit) for limit in TBT_S],
        "within_ttft": sum(item is not None for item in means) / len(records),
        "hit_rate": sum(record.hit_tokens or 0 for record in records)
        / sum(record.request.prompt_tokens for record in records),
    }


def _share(times: list[float | None], limit: float) -> float:
    return sum(item is not None and item <= limit for item in times) / len(times)


def _fleet(system: str, source: FixedArrivals) -> _Gaps:
    profile = EngineProfile(max_batched_tokens=CHUNK_TOKENS)
    placement = "mooncake" if system == MOONCAKE else "least_loaded"
    policy = evaluation_policy(Stage(name=placement), Stage(name="fifo"), ttft_slo_s=TTFT_S, profile=profile)
    if system == MOONCAKE:
        return _mooncake(RunSpec(policy=policy, engines=ENGINES, prefill=PREFILL, profile=profile), source)
    if system == CHUNKED:
        policy = msgspec.structs.replace(policy, prefill_window_tokens=1_000_000)

    def build() -> SimulatedEngine:
        return ChunkedEngine(profile, emit_tokens=True) if system == CHUNKED else colocated(profile, emit_tokens=True)

    return _Gaps(Router("capacity", policy, 1, placements=PLACEMENTS), source, build, engine_names(ENGINES))


def _mooncake(spec: RunSpec, source: FixedArrivals) -> _Gaps:
    profile = spec.profile
    options: dict[str, Any] = {"transfers": BlockTransfers(profile.kv_bytes_per_token, profile.link_bytes_per_s)}
    fleet = _SeparateEngines(Router("capacity", spec.policy, 1, placements=PLACEMENTS), source, profile, {}, **options)
    # The fleet's own builder makes decode engines without token events.
    fleet.stations.build_role = lambda role: (
        PrefillRole(profile) if role == "prefill" else DecodeRole(profile, emit_tokens=True)
    )
    for engine_id, role in roles_of(spec).items():
        fleet.change(EngineJoins(0.0, engine_id, role=role))
    return fleet


def copies(trace: str) -> Row:
    """Return the copies over time of the blocks at some ranks, by the sum over all samples."""
    profile, policy = EngineProfile(), evaluation_policy(Stage(name="mooncake"), Stage(name="fifo"))
    source = FixedArrivals(workload(trace).arrivals(COPY_RATES[trace], SLO_TTFT_S))
    simulation = _Copies(
        Router("copies", policy, 1, placements=PLACEMENTS),
        source,
        lambda: ReferenceEngine(profile),
        engine_names(COPY_ENGINES),
        transfers=BlockTransfers(profile.kv_bytes_per_token, profile.link_bytes_per_s),
    )
    simulation.copies = Counter()
    samples: list[Counter[int]] = []

    def watch(fleet: FleetSimulation) -> bool:
        if fleet.now >= SAMPLE_S * (len(samples) + 1):
            samples.append(Counter(simulation.copies))
        return False

    simulation.run(watch)
    total = Counter[int]()
    for sample in samples:
        total.update(sample)
    ranked = [key for key, _ in sorted(total.items(), key=lambda item: (-item[1], item[0]))]
    return {"copies": [[sample[ranked[rank - 1]] for sample in samples] for rank in RANKS if rank <= len(ranked)]}
