"""One audit: the closest engine, both runs under every assumption, and their ranges."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import fmean, quantiles

import msgspec

from controlplane.router_audit.audited_fleet import AuditedFleet
from controlplane.router_audit.engine_fit import ENGINE_MODELS, LEAST_OUTCOMES, EngineFit, with_cache, with_prefill
from controlplane.router_audit.judging import judged_decisions
from controlplane.router_audit.rebuild import Assumptions, run_as_logged, run_by_default
from planning.router_audit.audit_summary import (
    AuditedDecision,
    AuditSummary,
    FigureRange,
    figure_range,
    sampling_error,
    summary_of,
)
from simulator.fleet.request_record import RequestRecord


class RunFigures(msgspec.Struct, frozen=True):
    """Figures of one simulated run. Shares are 0..1."""

    ttft_s: float
    """Mean over requests with a first token."""
    ttft_p95_s: float
    on_time: float
    """Share of requests with a first token within the objective."""
    hits: float
    """Share of prompt tokens in cache."""


class AssumedOutcome(msgspec.Struct, frozen=True):
    """Both runs under one set of assumptions."""

    name: str
    logged: RunFigures
    default: RunFigures
    gain_s: float
    """Seconds by which the default's mean time to first token is shorter."""
    regret_s: float


class AuditResult(msgspec.Struct, frozen=True):
    """All figures of an audit. Ranges cover all assumptions."""

    summary: AuditSummary
    outcomes: tuple[AssumedOutcome, ...]
    """The first is the closest to the log."""
    regret_s: FigureRange
    """Sum over all requests."""
    gain_s: FigureRange
    """Mean time to first token that a switch to the default would save."""
    fit: EngineFit
    miss_s: float | None
    """Mean time to first token in the log minus the simulated one of the same requests; None: not logged."""
    sampling_s: float
    """Half the 90 % interval of the gain, from the requests' differences."""
    logged_hits: float | None
    """Logged share of cached prompt tokens; None: not logged."""


def assumption_sets(fit: EngineFit) -> list[Assumptions]:
    """Return the closest engine, and those that differ from it in one fact that the log does not settle."""
    best, cache = fit.assumed, 1.4 if fit.cache == "fitted" else 2.0
    other = next(model for model in ENGINE_MODELS if model != best.engine_model)
    return [
        best,
        with_prefill(best, 1 / fit.spread, f"prefill {fit.spread:.2f} times faster"),
        with_prefill(best, fit.spread, f"prefill {fit.spread:.2f} times slower"),
        with_cache(best, 1 / cache, f"caches {cache:g} times smaller"),
        with_cache(best, cache, f"caches {cache:g} times larger"),
        msgspec.structs.replace(best, engine_model=other, name=f"engine model {other}"),
    ]


def audited(fleet: AuditedFleet, fit: EngineFit, rule: str, on_step: Callable[[], object]) -> AuditResult:
    """Return the result. `on_step` is called after each set of assumptions."""
    outcomes: list[AssumedOutcome] = []
    decisions: list[AuditedDecision] = []
    regrets: list[float] = []
    miss_s, sampling_s = None, 0.0
    for assumed in assumption_sets(fit):
        run, default = run_as_logged(fleet, assumed, rule), run_by_default(fleet, assumed)
        judged = judged_decisions(fleet, run, assumed)
        regrets.append(sum(decision.regret_s for decision in judged))
        logged, other = figures_of(run.records), figures_of(default)
        outcomes.append(AssumedOutcome(assumed.name, logged, other, logged.ttft_s - other.ttft_s, regrets[-1]))
        if not decisions:
            decisions, miss_s = judged, _miss_s(fleet, run.records)
            sampling_s = sampling_error(
                [_ttft_s(one) - _ttft_s(two) for one, two in zip(run.records, default, strict=True)]
            )
            # Against simulated outcomes: what the model's distance from the log may add or hide.
            by_model = judged_decisions(fleet, run, assumed, by_log=False)
            regrets.append(sum(decision.regret_s for decision in by_model))
        on_step()
    return AuditResult(
        summary_of(decisions),
        tuple(outcomes),
        figure_range(regrets),
        figure_range(outcome.gain_s for outcome in outcomes).widened(sampling_s + abs(miss_s or 0.0)),
        fit,
        miss_s,
        sampling_s,
        _logged_hits(fleet),
    )


def figures_of(records: Sequence[RequestRecord]) -> RunFigures:
    """Return the figures of a run."""
    times = [record.ttft_s for record in records if record.ttft_s is not None]
    return RunFigures(
        ttft_s=fmean(times) if times else 0.0,
        ttft_p95_s=quantiles(times, n=20)[-1] if len(times) > 1 else sum(times),
        on_time=sum(ttft_s <= records[0].request.ttft_slo_s for ttft_s in times) / len(records),
        hits=sum(record.hit_tokens or 0 for record in records) / sum(item.request.prompt_tokens for item in records),
    )


def _ttft_s(record: RequestRecord) -> float:
    return record.ttft_s or 0.0


def _miss_s(fleet: AuditedFleet, records: Sequence[RequestRecord]) -> float | None:
    pairs = zip(fleet.requests, records, strict=True)
    misses = [request.ttft_s - _ttft_s(record) for request, record in pairs if request.ttft_s is not None]
    return fmean(misses) if len(misses) >= LEAST_OUTCOMES else None


def _logged_hits(fleet: AuditedFleet) -> float | None:
    known = [(item.cached_tokens, item.prompt_tokens) for item in fleet.requests if item.cached_tokens is not None]
    tokens = sum(prompt or 0 for _, prompt in known)
    return sum(cached for cached, _ in known) / tokens if tokens else None
