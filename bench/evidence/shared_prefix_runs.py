"""Fleets under the generated shared prefixes (GSP) of the LBGR paper's §5, in blocks finer than a trace's.

With blocks of 512 tokens, as in a trace, the paper's shortest prompts would share no block, so these requests get keys
for every few tokens.
"""

from __future__ import annotations

import random
from functools import cached_property, lru_cache
from itertools import count, islice
from typing import Literal

import msgspec
from typing_extensions import override

from bench.evidence.store import Row
from kvstore.keys.block_keys import key_seed, rekey_hashes
from routing.policy.policy_document import Parameter, Stage
from routing.values.inference_request import InferenceRequest
from simulator.engine_models.engine_profile import EngineProfile
from simulator.fleet.fleet_simulation import FleetSimulation
from simulator.fleet.request_record import FINISHED
from simulator.percentile import percentile
from simulator.runs.simulation_run import RunSpec, evaluation_policy, run
from simulator.workloads.arrival_pattern import poisson_times
from simulator.workloads.arrivals import Arrival, request_name, simulation_secret
from simulator.workloads.prepared_workload import Workload
from simulator.workloads.shared_prefix import SharedPrefixShape
from simulator.workloads.trace import TraceRow

BLOCK_TOKENS = 32
ENGINES, CACHE_TOKENS, QPS = 4, 200_000, 12.0
SLO_TTFT_S = 5.0
_EVERYTHING = 1_000_000
"""Prefill window that dispatches every request at once, so that it waits in the engine."""


class SharedPrefixRun(msgspec.Struct, frozen=True, kw_only=True):
    """One run; `tokens_per_s` is the speed of prefill, the same for every token."""

    placement: str
    order: str = "fifo"
    placement_params: dict[str, Parameter] = {}
    eviction: Literal["lru", "rlt"] = "lru"
    tokens_per_s: int
    engines: int = ENGINES
    cache_tokens: int = CACHE_TOKENS
    qps: float = QPS
    ratio: float = 0.5
    prompts: int = 32
    arrivals: Literal["random", "round_robin"] = "random"
    engine_model: Literal["reference", "chunked"] = "reference"
    output_tokens: int = 4
    max_running: int = 256
    block_tokens: int = BLOCK_TOKENS
    seed: int = 1


class SharedPrefixWorkload(Workload):
    """All groups × prompts requests. Up to the end of the shared part, block k of a prompt has one key per group."""

    def __init__(self, shape: SharedPrefixShape, block_tokens: int, seed: int) -> None:
        self.block_tokens = block_tokens
        rng = random.Random(seed)
        groups = [group for _ in range(shape.prompts) for group in range(shape.groups)]
        if shape.order == "random":
            rng.shuffle(groups)
        lengths = [shape.lengths[group % len(shape.lengths)] for group in groups]
        super().__init__(
            [
                TraceRow(timestamp=1000 * at_s, input_length=length, output_length=shape.output_tokens, hash_ids=())
                for length, at_s in zip(lengths, poisson_times(rng, shape.qps), strict=False)
            ],
            seed=seed,
        )
        ids, salt = count(), key_seed(simulation_secret(seed), "simulated")
        # Ids are given in order, so that no two groups or prompts share one by chance.
        shared = [
            tuple(islice(ids, int(shape.lengths[group % len(shape.lengths)] * shape.ratio) // block_tokens))
            for group in range(shape.groups)
        ]
        self.keys = [
            rekey_hashes(salt, (*shared[group], *islice(ids, -(-length // block_tokens) - len(shared[group]))))
            for group, length in zip(groups, lengths, strict=True)
        ]

    @cached_property
    @override
    def infinite_hits(self) -> list[int]:
        """Prompt tokens of each request that an unbounded cache shared by the fleet would hold."""
        seen: set[int] = set()
        hits = []
        for keys in self.keys:
            hits.append(self.block_tokens * sum(key in seen for key in keys))
            seen.update(keys)
        return hits

    @override
    def arrivals(self, qps: float | None, ttft_slo_s: float) -> list[Arrival]:
        """Return the requests as generated. They already have a rate, so `qps` is None."""
        return [
            Arrival(
                InferenceRequest(
                    request_name(number),
                    self.keys[number],
                    row.input_length,
                    self.block_tokens,
                    row.timestamp / 1000,
                    ttft_slo_s,
                    row.output_length,
                ),
                row.output_length,
            )
            for number, row in enumerate(self.rows)
        ]


@lru_cache(maxsize=2)
def workload(shape: SharedPrefixShape, block_tokens: int, seed: int) -> SharedPrefixWorkload:
    """Return the requests of one setting."""
    return SharedPrefixWorkload(shape, block_tokens, seed)


def profile_of(asked: SharedPrefixRun) -> EngineProfile:
    """Return engines of one speed with the known cache and decode step of the paper's L40.

    A decode step reads the weights of an 8B model in 16 bits once: 16 GB at 864 GB/s.
    """
    return EngineProfile(
        prefill_base_s=0.0,
        prefill_per_token_s=1 / asked.tokens_per_s,
        prefill_per_token_squared_s=0.0,
        prefill_per_hit_token_s=0.0,
        step_base_s=0.0185,
        block_tokens=asked.block_tokens,
        num_blocks=asked.cache_tokens // asked.block_tokens,
        max_running=asked.max_running,
        eviction=asked.eviction,
    )


def simulate(asked: SharedPrefixRun) -> tuple[SharedPrefixWorkload, FleetSimulation]:
    """Run to the end and return the requests and their outcomes."""
    shape = SharedPrefixShape(
        qps=asked.qps,
        ratio=asked.ratio,
        prompts=asked.prompts,
        order=asked.arrivals,
        output_tokens=asked.output_tokens,
    )
    requests = workload(shape, asked.block_tokens, asked.seed)
    profile = profile_of(asked)
    policy = evaluation_policy(
        Stage(name=asked.placement, params=asked.placement_params),
        Stage(name=asked.order),
        ttft_slo_s=SLO_TTFT_S,
        profile=profile,
    )
    if asked.engine_model == "chunked":
        policy = msgspec.structs.replace(policy, prefill_window_tokens=_EVERYTHING)
    spec = RunSpec(
        policy=policy, engines=asked.engines, engine_model=asked.engine_model, profile=profile, seed=asked.seed
    )
    return requests, run(spec, requests)


def run_row(asked: SharedPrefixRun) -> Row:
    """Run one setting and return its row: its parameters, and the paper's figures."""
    named: Row = msgspec.to_builtins(asked)
    return named | figures(*simulate(asked))


def figures(requests: Workload, simulation: FleetSimulation) -> Row:
    """Return the paper's figures of a run (§5, Metrics)."""
    records = simulation.history
    ttfts = sorted(record.ttft_s for record in records if record.ttft_s is not None)
    e2es = sorted(record.e2e_s for record in records if record.e2e_s is not None)
    ends = [record.finished_s for record in records if record.finished_s is not None]
    return {
        "ttft_p50_s": percentile(ttfts, 50),
        "ttft_p95_s": percentile(ttfts, 95),
        "e2e_p50_s": percentile(e2es, 50),
        "e2e_p95_s": percentile(e2es, 95),
        "hit_rate": sum(record.hit_tokens or 0 for record in records) / sum(requests.prompt_tokens),
        "hit_rate_infinite": requests.infinite_hit_rate(0),
        "throughput_rps": len(ends) / max(ends),
        "finished": sum(record.status == FINISHED for record in records),
    }
