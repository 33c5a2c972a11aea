"""The figures of one run, with the keys of the `simulate` contract, additional detail, and their mean over seeds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from simulator.automation.fleet_automation import EngineChange
from simulator.fleet.fleet_simulation import FleetSimulation
from simulator.fleet.request_record import FINISHED, REJECTED, RequestRecord
from simulator.percentile import percentile
from simulator.runs.canary_report import CanaryReport, canary_report
from simulator.runs.simulation_run import RunSpec
from simulator.workloads.prepared_workload import Workload


class PlanRow(msgspec.Struct, frozen=True):
    """One plan that had an effect, or would have had one if it were not only advised."""

    at_s: float
    automation: str
    what: str
    why: str


class LengthBand(msgspec.Struct, frozen=True):
    """Requests in one range of prompt lengths, and their on-time share."""

    from_tokens: int
    to_tokens: int
    requests: int
    slo_share: float


class RunDetail(msgspec.Struct, frozen=True, kw_only=True):
    """Figures outside the contract."""

    counted: int
    """Number of requests after the warm-up, to which all shares refer."""
    engine_model: str
    seed: int
    unfinished: int
    failed: int
    bands: list[LengthBand]
    """On-time shares by prompt length: four quarters and the longest tenth."""
    finished_per_s: float = 0.0
    """Finished requests per second, from the first arrival to the last end; in a closed loop, its rate."""
    series: list[tuple[float, list[int]]] = []
    """(seconds, in-flight tokens of each engine), if requested."""
    ttft_quantiles_s: list[float] = []
    """Percentiles 0 to 100 of the times to first token of answered requests, if requested."""
    plans: list[PlanRow] = []
    """Plans of the automations, if there are any."""
    prefill: int = 0
    """Number of prefill engines at the start; 0 if every engine both prefills and decodes."""
    engine_changes: list[EngineChange] = []
    """Engines that automations added, removed, or switched to another role, in chronological order."""
    canary: CanaryReport | None = None
    """Both arms; None without a canary."""


class RunReport(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One run. Shares are 0..1 of the requests, or prompt tokens, after the warm-up; None: no request was served.

    A request is on time if its first token is within the TTFT SLO and, if a TPOT SLO is set, its mean time between
    tokens is within that. Rejected and unfinished requests are late. Times between tokens are 0 if no answer has a
    second token.
    """

    placement: str
    order: str
    engines: int
    qps: float | None
    requests: int
    slo_share: float
    slo_token_share: float
    ttft_p50_s: float | None
    ttft_p90_s: float | None
    ttft_p99_s: float | None
    ttft_mean_s: float | None
    itl_p90_s: float
    e2e_p50_s: float | None
    e2e_p90_s: float | None
    token_hit_rate: float
    hit_rate_infinite: float
    mean_cv: float
    rejected: int
    migrations: int
    transferred_tokens: int
    wall_s: float
    goodput_qps: float | msgspec.UnsetType = msgspec.UNSET
    goodput_both_qps: float | msgspec.UnsetType = msgspec.UNSET
    detail: RunDetail | msgspec.UnsetType = msgspec.UNSET


def on_time(record: RequestRecord, slo_tpot_s: float | None, ttft_slo_s: float | None = None) -> bool:
    """Return whether the request met its SLOs. Without `ttft_slo_s`, its deadline counts."""
    request = record.request
    deadline_s = request.deadline_s if ttft_slo_s is None else request.arrived_s + ttft_slo_s
    if record.first_token_s is None or record.first_token_s > deadline_s or record.status != FINISHED:
        return False
    tpot = record.tpot_s
    # An answer of one token has no time between tokens.
    return slo_tpot_s is None or tpot is None or tpot <= slo_tpot_s


def report_of(spec: RunSpec, workload: Workload, simulation: FleetSimulation, wall_s: float) -> RunReport:
    """Return the figures of a finished run."""
    records = simulation.history[spec.warmup :]
    good = [on_time(record, spec.slo_tpot_s, spec.counted_slo_s) for record in records]
    tokens = [record.request.prompt_tokens for record in records]
    ttfts = sorted(record.ttft_s for record in records if record.ttft_s is not None)
    e2es = sorted(record.e2e_s for record in records if record.e2e_s is not None)
    tpots = sorted(record.tpot_s for record in records if record.tpot_s is not None)
    served = [record for record in records if record.hit_tokens is not None]
    return RunReport(
        placement=spec.policy.placement.name,
        order=spec.policy.order.name,
        engines=spec.engines,
        qps=spec.qps,
        requests=len(workload),
        slo_share=_share(sum(good), len(good)),
        slo_token_share=_share(sum(count for count, met in zip(tokens, good, strict=True) if met), sum(tokens)),
        ttft_p50_s=percentile(ttfts, 50),
        ttft_p90_s=percentile(ttfts, 90),
        ttft_p99_s=percentile(ttfts, 99),
        ttft_mean_s=sum(ttfts) / len(ttfts) if ttfts else None,
        itl_p90_s=percentile(tpots, 90) or 0.0,
        e2e_p50_s=percentile(e2es, 50),
        e2e_p90_s=percentile(e2es, 90),
        token_hit_rate=_share(
            sum(item.hit_tokens or 0 for item in served), sum(item.request.prompt_tokens for item in served)
        ),
        hit_rate_infinite=workload.infinite_hit_rate(spec.warmup),
        mean_cv=simulation.samples.mean_cv,
        rejected=sum(record.status == REJECTED for record in records),
        migrations=sum(record.migrations for record in records),
        transferred_tokens=sum(record.transferred_tokens for record in records),
        wall_s=round(wall_s, 3),
        detail=_detail(spec, simulation, records, good, quantiles(ttfts) if spec.keep_quantiles else []),
    )


def _detail(
    spec: RunSpec,
    simulation: FleetSimulation,
    records: Sequence[RequestRecord],
    good: Sequence[bool],
    ttft_quantiles_s: list[float],
) -> RunDetail:
    return RunDetail(
        counted=len(records),
        # Engines with one role have a model of their own.
        engine_model="pd" if spec.prefill else spec.engine_model,
        prefill=spec.prefill,
        seed=spec.seed,
        unfinished=sum(record.status == "unfinished" for record in records),
        failed=sum(record.status == "failed" for record in records),
        bands=length_bands([(item.request.prompt_tokens, met) for item, met in zip(records, good, strict=True)]),
        finished_per_s=_finished_per_s(records),
        series=simulation.samples.series,
        ttft_quantiles_s=ttft_quantiles_s,
        canary=canary_report(simulation.router.arms, spec.policy.placement.name, records, good),
    )


def _finished_per_s(records: Sequence[RequestRecord]) -> float:
    ends = [record.finished_s for record in records if record.finished_s is not None]
    return _share(len(ends), max(ends) - records[0].request.arrived_s) if ends else 0.0


def quantiles(ordered: Sequence[float]) -> list[float]:
    """Return percentiles 0, 1, … 100 of values in ascending order; empty without values."""
    return [percentile(ordered, percent) or 0.0 for percent in range(101)] if ordered else []


def length_bands(requests: Sequence[tuple[int, bool]]) -> list[LengthBand]:
    """Return on-time shares of (prompt tokens, on time) pairs by prompt length: four quarters and the longest tenth."""
    # By length alone: many prompts are cut to the same length, and the late ones among them must not be first.
    ordered = sorted(requests, key=lambda pair: pair[0])
    count = len(ordered)
    bands = []
    for first, last in ((0, 25), (25, 50), (50, 75), (75, 100), (90, 100)):
        part = ordered[count * first // 100 : count * last // 100]
        if part:
            bands.append(LengthBand(part[0][0], part[-1][0], len(part), _share(sum(met for _, met in part), len(part))))
    return bands


def _share(part: float, whole: float) -> float:
    return part / whole if whole else 0.0


def mean_of(reports: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the only report, or a report of means that contains all reports under `seeds`.

    A figure has no mean if it is None in any report.
    """
    if len(reports) == 1:
        return reports[0]
    mean: dict[str, Any] = {}
    for key, first in reports[0].items():
        values = [report.get(key) for report in reports]
        if isinstance(first, int | float) and all(isinstance(value, int | float) for value in values):
            total = sum(value for value in values if value is not None)
            # Equal figures stay as they are: whole numbers whole, others without rounding.
            mean[key] = first if all(value == first for value in values) else total / len(values)
        elif key != "detail":
            mean[key] = first if all(value == first for value in values) else None
    return {**mean, "seeds": list(reports)}
