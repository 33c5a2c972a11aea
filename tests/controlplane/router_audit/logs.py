"""Logs of a simulated fleet that a rule routed: what the audited router would have written."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

from routing.policy.dispatch_limit_document import BLIND, DispatchLimitDocument
from routing.policy.policy_document import RoutingPolicy, Stage
from simulator.engine_models.engine_profile import EngineProfile
from simulator.fleet.request_record import RequestRecord
from simulator.runs.simulation_run import RunSpec, run
from simulator.workloads.prepared_workload import Workload
from simulator.workloads.trace import TraceRow


def conversations(requests: int, *, gap_ms: float, seed: int = 1) -> list[TraceRow]:
    """Return turns of conversations over a few system prompts."""
    rng = Random(seed)
    histories: list[list[int]] = [[rng.randrange(4)] * 1 for _ in range(24)]
    rows, at_ms, fresh = [], 0.0, 1000
    for _ in range(requests):
        at_ms += rng.expovariate(1 / gap_ms)
        history = rng.choice(histories)
        history += range(fresh, fresh + 4)
        fresh += 4
        if len(history) > 40:
            del history[1:]
            history += range(fresh, fresh + 2)
            fresh += 2
        rows.append(
            TraceRow(
                timestamp=round(at_ms, 3),
                input_length=len(history) * 512,
                output_length=rng.randrange(20, 120),
                hash_ids=tuple(history),
            )
        )
    return rows


def served(rows: list[TraceRow], rule: str, profile: EngineProfile, *, engines: int = 4) -> list[RequestRecord]:
    """Return the records of a fleet behind a router of this rule, which sends at once."""
    policy = RoutingPolicy(
        placement=Stage(name=rule),
        order=Stage(name="fifo"),
        dispatch_limit=DispatchLimitDocument(mode=BLIND),
        max_wait_s=3600.0,
        queue_limit=1_000_000,
        reservation_ttl_s=86_400.0,
    )
    return run(RunSpec(policy=policy, engines=engines, engine_model="chunked", profile=profile), Workload(rows)).history


def write_log(path: Path, rows: list[TraceRow], records: list[RequestRecord], *, outcomes: bool = True) -> Path:
    """Write a log in Mooncake's format with engines, and with what their answers reported."""
    lines = []
    for row, record in zip(rows, records, strict=True):
        line = {
            "timestamp": row.timestamp, "input_length": row.input_length, "output_length": row.output_length,
            "hash_ids": row.hash_ids, "engine": f"gpu-{record.engine_id[-1]}",
        }  # fmt: skip
        if outcomes:
            line |= {"ttft_s": record.ttft_s, "total_s": record.e2e_s, "cached_tokens": record.hit_tokens}
        lines.append(json.dumps(line) + "\n")
    path.write_text("".join(lines))
    return path
