"""Early and predictive rejection on separate prefill and decode engines (Mooncake §4.3, §7.6, Table 4, Figs 6–7)."""

from __future__ import annotations

from functools import partial
from statistics import correlation, fmean, pstdev

import msgspec

from bench.evidence.cells import run_all
from bench.evidence.store import Result, Row, measured
from bench.evidence.traces import MAX_INPUT, TRACES, WARMUP, workload
from routing.cost.cost_model import DecodeCost
from routing.policy.admission_document import AdmissionDocument
from routing.policy.cost_document import DecodeCostDocument
from routing.policy.policy_document import RoutingPolicy, Stage
from routing.router import Router
from simulator.engine_models.engine_profile import EngineProfile
from simulator.fleet.fleet_simulation import FleetSimulation
from simulator.fleet.request_record import REJECTED
from simulator.runs.run_report import on_time
from simulator.runs.simulation_run import RunSpec, evaluation_policy, simulation_of

TRACE = "toolagent_like"
ENGINES = 8
TPOT_SLO_S = 0.1
SLOW_DECODE = DecodeCostDocument(base_s=0.03, per_sequence_s=1.5e-3, per_context_token_s=100e-9)
"""Decode step of a 70B model on one machine: about 29 requests of this trace fit into 100 ms."""

NONE, AFTER_PREFILL, EARLY = "none", "after_prefill", "early"
SYSTEM, INSTANCE = "predictive_system", "predictive_instance"
UNIFORM, UNIFORM_SHORT = "uniform_mean", "uniform"
"""Modes of predictive_system as in the paper, with one uniform decode time t_d.

t_d is the mean observed under early rejection in the same setting, or a much shorter time.
"""
MODES = (NONE, AFTER_PREFILL, EARLY, UNIFORM, UNIFORM_SHORT, SYSTEM, INSTANCE)
SHORT_S = 20.0
MARGIN = 0.9
"""Share of an objective up to which requests are admitted, so that borderline ones are still on time."""
SETTINGS: dict[str, tuple[float, float]] = {"decode": (18.0, 1.0), "both": (26.0, 1.0), "slow_prefill": (26.0, 2.0)}
"""Overloaded side → arrivals per second, and the duration of prefills relative to the reference's."""
OBJECTIVES_S = (5.0, 30.0)
SHOWN = ("slow_prefill", 30.0)
"""The setting whose loads are kept over time."""
STEP_S = 2.0
_BEYOND_S = 60.0
"""A TBT objective that every request meets, so that the decode side does not count."""


class Asked(msgspec.Struct, frozen=True):
    """One run."""

    load: str
    ttft_slo_s: float
    mode: str
    uniform_s: float = 0.0
    """t_d; 0: decodes end at the observed rate."""


def policy_of(asked: Asked) -> RoutingPolicy:
    """Return the run's policy: lowest TTFT, first come first served, exact estimates."""
    profile = profile_of(asked)
    policy = evaluation_policy(Stage(name="min_ttft"), Stage(name="fifo"), ttft_slo_s=asked.ttft_slo_s, profile=profile)
    mode = {NONE: "off", AFTER_PREFILL: EARLY, UNIFORM: SYSTEM, UNIFORM_SHORT: SYSTEM}.get(asked.mode, asked.mode)
    admission = msgspec.convert({"mode": mode, "threshold": MARGIN, "decode_s": asked.uniform_s}, AdmissionDocument)
    # The baseline checks prefill when a request arrives, and decode only once its prefill is over.
    tpot_slo_s = _BEYOND_S if asked.mode == AFTER_PREFILL else TPOT_SLO_S
    return msgspec.structs.replace(policy, admission=admission, decode_cost=SLOW_DECODE, tpot_slo_s=tpot_slo_s)


def profile_of(asked: Asked) -> EngineProfile:
    """Return the run's engines."""
    usual, slower = EngineProfile(), SETTINGS[asked.load][1]
    return EngineProfile(
        prefill_base_s=usual.prefill_base_s * slower,
        prefill_per_token_s=usual.prefill_per_token_s * slower,
        prefill_per_token_squared_s=usual.prefill_per_token_squared_s * slower,
        prefill_per_hit_token_s=usual.prefill_per_hit_token_s * slower,
        step_base_s=SLOW_DECODE.base_s,
        step_per_sequence_s=SLOW_DECODE.per_sequence_s,
        step_per_context_token_s=SLOW_DECODE.per_context_token_s,
        device_tokens=1_000_000,
    )


def may_decode(router: Router, engine_id: str) -> bool:
    """Return whether the engine's decode step, including the request that just joined, meets the objective."""
    batch, book = router.admission.book.decoding(router.fleet.known_target(engine_id)), router.admission.book
    return DecodeCost.of(SLOW_DECODE).seconds(batch, batch * book.context_tokens) <= MARGIN * TPOT_SLO_S


def measure_one(asked: Asked) -> Row:
    """Run one cell and return its row."""
    rows = workload(TRACE)
    spec = RunSpec(
        policy=policy_of(asked),
        engines=ENGINES,
        qps=SETTINGS[asked.load][0],
        warmup=WARMUP,
        engine_model="pd",
        profile=profile_of(asked),
        slo_tpot_s=TPOT_SLO_S,
        sample_every_s=STEP_S,
    )
    simulation = simulation_of(spec, rows)
    simulation.decode_gate = may_decode if asked.mode == AFTER_PREFILL else None
    loads: list[tuple[float, float]] = []
    simulation.run(partial(_watch, loads, asked.ttft_slo_s))
    return _row(asked, spec, simulation, loads)


def _watch(loads: list[tuple[float, float]], slo_s: float, simulation: FleetSimulation) -> bool:
    """Sample both loads: mean wait over the TTFT objective, and mean step over the TBT objective."""
    if len(simulation.history) >= WARMUP and len(simulation.history) < len(workload(TRACE)):
        admission, now = simulation.router.admission, simulation.now
        targets = simulation.router.view.roster.accepting
        cost, book = DecodeCost.of(SLOW_DECODE), admission.book
        steps = [cost.seconds(n, n * book.context_tokens) for n in map(book.decoding, targets)]
        loads.append((admission.prefill_load(now, slo_s), fmean(steps) / TPOT_SLO_S))
    return False


def _row(asked: Asked, spec: RunSpec, simulation: FleetSimulation, loads: list[tuple[float, float]]) -> Row:
    records = simulation.history[WARMUP:]
    rejected = [record for record in records if record.status == REJECTED]
    admitted = [record for record in records if record.status != REJECTED]
    prefill, decode = [load for load, _ in loads], [load for _, load in loads]
    row: Row = {
        "load": asked.load,
        "qps": SETTINGS[asked.load][0],
        "ttft_slo_s": asked.ttft_slo_s,
        "mode": asked.mode,
        "uniform_s": asked.uniform_s,
        "requests": len(records),
        "rejected": len(rejected),
        "rejected_after_prefill": sum(item.first_token_s is not None for item in rejected),
        "served_on_time": sum(on_time(record, spec.slo_tpot_s) for record in records),
        "admitted_prompt_tokens": fmean(item.request.prompt_tokens for item in admitted),
        "admitted_output_tokens": fmean(item.output_tokens for item in admitted),
        "prefill_load": fmean(prefill),
        "prefill_load_sd": pstdev(prefill),
        "decode_load": fmean(decode),
        "decode_load_sd": pstdev(decode),
        "correlation": correlation(prefill, decode),
        "decode_s": simulation.router.admission.book.decode_s,
    }
    if (asked.load, asked.ttft_slo_s) == SHOWN:
        row["loads"] = [[round(one, 4), round(other, 4)] for one, other in loads]
    return row


def measure(jobs: int) -> Result:
    """Run every rule at every load and TTFT objective. t_d is known after early rejection has run."""
    settings = [(load, slo_s) for load in SETTINGS for slo_s in OBJECTIVES_S]
    shorts = {UNIFORM_SHORT: SHORT_S}
    asked = [Asked(*setting, mode, shorts.get(mode, 0.0)) for setting in settings for mode in MODES if mode != UNIFORM]
    rows = run_all(measure_one, asked, jobs=jobs, title="admission")
    means = {(row["load"], row["ttft_slo_s"]): row["decode_s"] for row in rows if row["mode"] == EARLY}
    again = [Asked(*setting, UNIFORM, means[setting]) for setting in settings]
    rows += run_all(measure_one, again, jobs=jobs, title="with the mean decode time")
    return measured(
        name="admission",
        settings={
            "trace": f"first {TRACES[TRACE][1]:,} rows of {TRACES[TRACE][0]}",
            "warmup": WARMUP,
            "max_input_tokens": MAX_INPUT,
            "engines": f"{ENGINES} prefill and {ENGINES} decode devices",
            "engine_model": "pd",
            "tpot_slo_s": TPOT_SLO_S,
            "margin": MARGIN,
            "short_uniform_s": SHORT_S,
            "decode_step": msgspec.to_builtins(SLOW_DECODE),
            "placement": "min_ttft",
            "order": "fifo",
            "step_s": STEP_S,
        },
        rows=rows,
    )
