"""Prefill and decode engines: fixed ratios (Mooncake §7.5, Fig. 23), and a day under a controller (§5.1)."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from itertools import count, pairwise
from math import cos, pi
from statistics import fmean

import msgspec

from bench.evidence.cells import run_all
from bench.evidence.store import Result, Row, measured
from planning.documents.automation_document import AutomationPolicy
from planning.documents.health_document import HealthDocument
from planning.documents.ratio_document import RatioDocument
from planning.documents.rebalance_document import RebalanceDocument
from planning.documents.scaling_document import ScalingDocument
from planning.facts.fleet_facts import Role
from routing.policy.policy_document import Stage
from routing.router import Router
from simulator.automation.fleet_automation import FleetAutomation
from simulator.engine_models.engine_profile import EngineProfile
from simulator.fleet.disaggregated_fleet import DisaggregatedFleet
from simulator.fleet.request_record import RequestRecord
from simulator.runs.run_report import on_time
from simulator.runs.simulation_run import evaluation_policy
from simulator.workloads.arrivals import FixedArrivals
from simulator.workloads.prepared_workload import Workload
from simulator.workloads.trace import BLOCK_TOKENS, TraceRow

ENGINES = 8
SWEEP_ENGINES = 16
DAY_S = 4800.0
"""A day of 24 hours in an eighteenth of the time. The controller's pauses are as long as in a live program."""
SLO_TTFT_S, SLO_TPOT_S = 10.0, 0.1
"""Objectives of §7.5."""
DOCUMENTS_QPS, CHATS_QPS = 2.1, 36.0
"""Rates at noon and at midnight."""
SWEEP_DOCUMENTS_QPS, SWEEP_CHATS_QPS = 3.0, 34.0
SWEPT = (2, 4, 6, 7, 8, 9, 10, 12, 14)
"""Prefill engines of the fixed ratios."""
SWEEP_S = 600.0
STEP_S = 60.0
BURST_S = 60.0
"""Period of waves in the rate of chats, a fifth up and down, so that loads are not smooth."""

AUTOMATION = AutomationPolicy(
    health=HealthDocument(mode="off"),
    rebalance=RebalanceDocument(mode="off"),
    scaling=ScalingDocument(mode="off"),
    ratio=RatioDocument(mode="act", window_s=60.0, hold_s=30.0, cool_down_s=120.0),
)


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """One run. `prefill`: initial prefill engines."""

    kind: str
    """`day` or `sweep`."""
    prefill: int
    controlled: bool = False
    seed: int = 1


FIXED = (3, 4, 5)
"""Prefill engines of the fixed ratios of the day."""

RUNS = (
    *(Run(kind="day", prefill=4, controlled=True, seed=seed) for seed in (1, 2)),
    *(Run(kind="day", prefill=prefill) for prefill in FIXED),
    *(Run(kind="sweep", prefill=prefill) for prefill in SWEPT),
)


def measure(jobs: int) -> Result:
    """Run the day under every fixed ratio and under the controller, and the sweep at a constant mix."""
    return measured(
        name="pd_ratio",
        settings={
            "engines": ENGINES,
            "sweep_engines": SWEEP_ENGINES,
            "day_s": DAY_S,
            "slo_ttft_s": SLO_TTFT_S,
            "slo_tpot_s": SLO_TPOT_S,
            "documents_qps": DOCUMENTS_QPS,
            "chats_qps": CHATS_QPS,
            "sweep_documents_qps": SWEEP_DOCUMENTS_QPS,
            "sweep_chats_qps": SWEEP_CHATS_QPS,
            "ratio": msgspec.to_builtins(AUTOMATION.ratio),
        },
        rows=run_all(run_one, RUNS, jobs=jobs, title="pd_ratio"),
    )


def day(seed: int) -> list[TraceRow]:
    """Return a day starting at midnight: long documents by day, chats by night (§5.1)."""

    def noon(at_s: float) -> float:
        return (1 - cos(2 * pi * at_s / DAY_S)) / 2

    return mixture(seed, DAY_S, lambda at_s: DOCUMENTS_QPS * noon(at_s), lambda at_s: CHATS_QPS * (1 - noon(at_s)))


def mixture(
    seed: int, seconds: float, documents_qps: Callable[[float], float], chats_qps: Callable[[float], float]
) -> list[TraceRow]:
    """Return documents (about 24,000 tokens, one in four used about twice) and chats (500 tokens, long answers)."""
    rng, ids = random.Random(seed), count(1)
    rows: list[TraceRow] = []
    shelf: list[tuple[int, ...]] = []
    for at_s in _thinned(rng, seconds, documents_qps, 2 * DOCUMENTS_QPS):
        if shelf and rng.random() < 0.25:
            document = shelf.pop(rng.randrange(len(shelf)))
        else:
            document = tuple(next(ids) for _ in range(round(min(60, rng.lognormvariate(3.8, 0.3)))))
            shelf = [*shelf[-50:], document]
        question = (next(ids),)
        rows.append(_row(at_s, len(document) * BLOCK_TOKENS + 200, rng.randint(80, 220), document + question))
    wave = lambda at_s: chats_qps(at_s) * (1.2 if at_s % BURST_S < BURST_S / 2 else 0.8)  # noqa: E731
    for at_s in _thinned(rng, seconds, wave, 2 * CHATS_QPS):
        tokens = rng.randint(200, 800)
        answer = round(min(2000, rng.lognormvariate(6.6, 0.4)))
        rows.append(_row(at_s, tokens, answer, tuple(next(ids) for _ in range(-(-tokens // BLOCK_TOKENS)))))
    return sorted(rows, key=lambda row: row.timestamp)


def _thinned(rng: random.Random, seconds: float, qps: Callable[[float], float], most_qps: float) -> Iterator[float]:
    """Yield the arrival times of a Poisson process with a changing rate."""
    at_s = 0.0
    while (at_s := at_s + rng.expovariate(most_qps)) < seconds:
        if rng.random() * most_qps < qps(at_s):
            yield at_s


def _row(at_s: float, tokens: int, answer: int, ids: tuple[int, ...]) -> TraceRow:
    return TraceRow(timestamp=1000 * at_s, input_length=tokens, output_length=answer, hash_ids=ids)


def run_one(asked: Run) -> Row:
    """Run one fleet."""
    if asked.kind == "day":
        rows, engines = day(asked.seed), ENGINES
    else:
        engines = SWEEP_ENGINES
        rows = mixture(asked.seed, SWEEP_S, lambda _: SWEEP_DOCUMENTS_QPS, lambda _: SWEEP_CHATS_QPS)
    profile = EngineProfile()
    policy = msgspec.structs.replace(
        evaluation_policy(Stage(name="least_cost"), Stage(name="fifo"), ttft_slo_s=SLO_TTFT_S), tpot_slo_s=SLO_TPOT_S
    )
    roles: dict[str, Role] = {f"e-{at + 1:03}": "prefill" if at < asked.prefill else "decode" for at in range(engines)}
    source = FixedArrivals(Workload(rows).arrivals(None, SLO_TTFT_S))
    simulation = DisaggregatedFleet(Router("pd", policy, 1), source, profile, roles)
    automation = FleetAutomation(AUTOMATION, profile)
    if asked.controlled:
        automation.attach(simulation)
    simulation.run()
    return _figures(asked, simulation.history, automation)


def _figures(asked: Run, records: list[RequestRecord], automation: FleetAutomation) -> Row:
    good = [on_time(record, SLO_TPOT_S) for record in records]
    tpots = sorted(record.tpot_s for record in records if record.tpot_s is not None)
    ttfts = sorted(record.ttft_s for record in records if record.ttft_s is not None)
    role_changes = [(plan.at_s, plan.role_changes[0].after) for plan in automation.ratio if plan.role_changes]
    row: Row = {
        "kind": asked.kind,
        "prefill": asked.prefill,
        "controlled": asked.controlled,
        "seed": asked.seed,
        "requests": len(records),
        "capacity": sum(good) / len(good),
        "ttft_mean_s": fmean(ttfts),
        "ttft_p90_s": ttfts[int(0.9 * len(ttfts))],
        "ttft_on_time": sum(
            record.first_token_s is not None and (record.ttft_s or 0) <= SLO_TTFT_S for record in records
        )
        / len(records),
        "tpot_mean_s": fmean(tpots),
        "tpot_p90_s": tpots[int(0.9 * len(tpots))],
        "tpot_on_time": sum(tpot <= SLO_TPOT_S for tpot in tpots) / len(tpots),
        "flips": len(role_changes),
        "turns": sum(a != b for (_, a), (_, b) in pairwise(role_changes)),
    }
    if asked.kind == "day":
        row["course"] = _course(records, good)
        row["tide"] = [
            [plan.at_s, plan.prefill, plan.decode, plan.imbalance, plan.prefill_load, plan.decode_load]
            for plan in automation.ratio[:: int(STEP_S / 2)]
        ]
        row["flipped"] = [[at_s, after] for at_s, after in role_changes]
    return row


def _course(records: list[RequestRecord], good: list[bool]) -> list[list[float]]:
    """Return per step of arrivals: start, requests, share within both objectives."""
    windows: dict[int, list[bool]] = {}
    for record, met in zip(records, good, strict=True):
        windows.setdefault(int(record.request.arrived_s // STEP_S), []).append(met)
    return [[at * STEP_S, len(part), sum(part) / len(part)] for at, part in sorted(windows.items())]
