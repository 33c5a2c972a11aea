"""One audit: the closest engine, both runs under every assumption, and their ranges."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import fmean, quantiles

import msgspec

from controlplane.router_audit.audited_fleet import AuditedFleet
from controlplane.router_audit.engine_fit import ENGINE_MODELS, EngineFit, with_cache, with_prefill
from controlplane.router_audit.judging import judged_decisions
from controlplane.router_audit.rebuild import Assumptions, run_as_logged, run_by_default
from planning.router_audit.audit_summary import AuditedDecision, AuditSummary, FigureRange, figure_range, summary_of
from simulator.fleet.request_record import FINISHED, RequestRecord

LOGGED_OUTCOMES = 20


class RunFigures(msgspec.Struct, frozen=True):
    """Figures of one simulated run."""

    ttft_s: float
    """Mean over requests with a first token."""
    ttft_p95_s: float
    on_time: float
    """Share of requests with a first token within the objective, 0..1."""
    hits: float
    """Share of prompt tokens in cache, 0..1."""
    served: int


class AssumedOutcome(msgspec.Struct, frozen=True):
    """Both runs under one set of assumptions."""

    name: str
    logged: RunFigures
    default: RunFigures
    regret_s: float

    @property
    def gain_s(self) -> float:
        """Return the seconds by which the default's mean time to first token is shorter."""
        return self.logged.ttft_s - self.default.ttft_s


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
    bias: float | None
    """Logged mean time to first token divided by the simulated one of the same requests; None: not logged."""
    logged_hits: float | None
    """Logged share of cached prompt tokens; None: not logged."""


def assumption_sets(fit: EngineFit) -> list[Assumptions]:
    """Return the closest engine, and those that differ from it in one fact that the log does not settle."""
    best = fit.assumed
    other = next(model for model in ENGINE_MODELS if model != best.engine_model)
    cache = 1.4 if fit.cache == "fitted" else 2.0
    return [
        best,
        with_prefill(best, 1 - fit.spread, f"prefill {fit.spread:.0%} faster"),
        with_prefill(best, 1 + fit.spread, f"prefill {fit.spread:.0%} slower"),
        with_cache(best, 1 / cache, f"caches {cache:g} times smaller"),
        with_cache(best, cache, f"caches {cache:g} times larger"),
        msgspec.structs.replace(best, engine_model=other, name=f"engine model {other}"),
    ]


def audited(fleet: AuditedFleet, fit: EngineFit, rule: str, on_step: Callable[[], None]) -> AuditResult:
    """Return the result. `on_step` is called after each set of assumptions."""
    outcomes: list[AssumedOutcome] = []
    decisions: list[AuditedDecision] = []
    regrets: list[float] = []
    bias, logged_hits = None, _logged_hits(fleet)
    for assumed in assumption_sets(fit):
        run = run_as_logged(fleet, assumed, rule)
        judged = judged_decisions(fleet, run, assumed)
        regret_s = sum(decision.regret_s for decision in judged)
        if not outcomes:
            decisions, bias = judged, _bias(fleet, run.records)
            # Regret against simulated outcomes bounds what the model's distance from the log may add.
            by_model = judged_decisions(fleet, run, assumed, by_log=False)
            regrets = [regret_s, sum(decision.regret_s for decision in by_model)]
        else:
            regrets.append(regret_s)
        default = run_by_default(fleet, assumed)
        outcomes.append(AssumedOutcome(assumed.name, figures_of(run.records), figures_of(default), regret_s))
        on_step()
    gain_s = figure_range(outcome.gain_s for outcome in outcomes)
    return AuditResult(
        summary_of(decisions),
        tuple(outcomes),
        figure_range(regrets),
        gain_s if bias is None else gain_s.widened(max(bias, 1 / bias)),
        fit,
        bias,
        logged_hits,
    )


def figures_of(records: Sequence[RequestRecord]) -> RunFigures:
    """Return the figures of a run."""
    times = [record.ttft_s for record in records if record.ttft_s is not None]
    prompts = sum(record.request.prompt_tokens for record in records)
    return RunFigures(
        ttft_s=fmean(times) if times else 0.0,
        ttft_p95_s=quantiles(times, n=20)[-1] if len(times) > 1 else sum(times),
        on_time=sum(ttft_s <= records[0].request.ttft_slo_s for ttft_s in times) / len(records),
        hits=sum(record.hit_tokens or 0 for record in records) / prompts,
        served=sum(record.status == FINISHED for record in records),
    )


def _bias(fleet: AuditedFleet, records: Sequence[RequestRecord]) -> float | None:
    known = [
        (request.ttft_s, record.ttft_s)
        for request, record in zip(fleet.requests, records, strict=True)
        if request.ttft_s is not None and record.ttft_s is not None
    ]
    if len(known) < LOGGED_OUTCOMES:
        return None
    logged_s, simulated_s = fmean(one for one, _ in known), fmean(other for _, other in known)
    return logged_s / simulated_s if logged_s and simulated_s else None


def _logged_hits(fleet: AuditedFleet) -> float | None:
    known = [request for request in fleet.requests if request.cached_tokens is not None and request.prompt_tokens]
    tokens = sum(request.prompt_tokens or 0 for request in known)
    return sum(request.cached_tokens or 0 for request in known) / tokens if tokens else None
