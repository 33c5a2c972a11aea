"""Measures what came of promoted proposals, from the recorded traffic before and after, and from the holdback."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from itertools import islice

from controlplane.advice.evidence import BY_NAME
from controlplane.advice.models.advice_proposal import AdvicePrediction, AdviceProposal
from controlplane.fleet.models.pool import Pool
from controlplane.request_log.recordings.statistics import JUDGED
from controlplane.request_log.store.segments import recorded_traffic
from gateway.contracts.traffic_row import TrafficRow
from planning.adviser.autopilot import HoldbackCounts, lead_change
from planning.adviser.calibration import MOST, MeasuredPrediction, change_between, widening
from planning.adviser.prediction import ON_TIME, ON_TIME_TOKENS, REJECTED, TTFT_MEAN, WindowFigures
from simulator.percentile import percentile

SPAN = timedelta(hours=1)
"""Traffic before the trials and after the promotion."""
LEAST_REQUESTS = 100
MOST_ROWS = 100_000


def measured_predictions(predictions: Iterable[AdvicePrediction]) -> list[MeasuredPrediction]:
    """Return the predictions that were measured."""
    return [
        MeasuredPrediction(
            BY_NAME[item.objective].kind, item.predicted, item.low, item.high, item.factor, item.measured
        )
        for item in predictions
        if item.measured is not None and item.objective in BY_NAME
    ]


def widening_of(pool: Pool) -> float:
    """Return the factor for the next ranges of the pool, from its newest measured predictions."""
    newest = AdvicePrediction.objects.filter(pool=pool, measured__isnull=False).order_by("-at", "-pk")[:MOST]
    return widening(measured_predictions(newest))


def is_due(proposal: AdviceProposal, now: datetime) -> bool:
    """Return whether the traffic after the promotion is recorded and the predictions are not measured yet."""
    after = proposal.promoted_at
    if after is None or now < after + SPAN or now > after + 2 * SPAN:
        return False
    return not proposal.predictions.filter(measured__isnull=False).exists()


def measure(proposal: AdviceProposal, holdback: HoldbackCounts, now: datetime) -> int:
    """Store the measured change of each predicted objective, and return how many there are.

    Before are the requests that the former version decided in the hour before the first trial, after are those of the
    proposal's version in the hour after its promotion.
    """
    promoted_at, version = proposal.promoted_at, proposal.version
    if promoted_at is None or version is None:
        return 0
    tried_at = min([promoted_at, *([proposal.canary.started_at] if proposal.canary else [])])
    before = _figures(proposal.pool, tried_at - SPAN, tried_at, proposal.base.number)
    after = _figures(proposal.pool, promoted_at, promoted_at + SPAN, version.number)
    if before is None or after is None:
        return 0
    stored = 0
    for prediction in proposal.predictions.all():
        objective = BY_NAME.get(prediction.objective)
        change = change_between(objective, before, after) if objective is not None else None
        if change is None:
            continue
        against = None
        if prediction.objective == ON_TIME and proposal.holdback:
            against = lead_change(HoldbackCounts(**proposal.holdback), holdback)
        AdvicePrediction.objects.filter(pk=prediction.pk).update(measured=change, against_holdback=against, at=now)
        stored += 1
    return stored


def _figures(pool: Pool, begin: datetime, end: datetime, version: int) -> WindowFigures | None:
    traffic = recorded_traffic(begin.timestamp(), end.timestamp())
    rows = [row for row in traffic if row.pool == pool.slug and row.policy_version == version]
    return live_figures(list(islice(rows, MOST_ROWS)))


def live_figures(rows: Sequence[TrafficRow]) -> WindowFigures | None:
    """Return the objectives of recorded requests as predictions define them; None for too few requests.

    Prefill time is an estimate of the simulated router and has no live figure.
    """
    judged = [row for row in rows if row.outcome in JUDGED]
    if len(judged) < LEAST_REQUESTS:
        return None
    ttfts = sorted(row.first_token_after_s for row in judged if row.first_token_after_s is not None)
    tokens = sum(row.prompt_tokens for row in judged)
    reported = [row for row in judged if row.cached_tokens is not None]
    prompts = sum(row.prompt_tokens for row in reported)
    return WindowFigures(
        figures={
            ON_TIME: sum(not row.late for row in judged) / len(judged),
            ON_TIME_TOKENS: sum(row.prompt_tokens for row in judged if not row.late) / tokens if tokens else None,
            REJECTED: sum(row.outcome == "rejected" for row in judged) / len(judged),
            TTFT_MEAN: sum(ttfts) / len(ttfts) if ttfts else None,
            "ttft_p50_s": percentile(ttfts, 50),
            "ttft_p90_s": percentile(ttfts, 90),
            "ttft_p99_s": percentile(ttfts, 99),
            "tpot_p90_s": percentile(sorted(map(_tpot_s, filter(_has_tpot, judged))), 90),
            "hits": sum(row.cached_tokens or 0 for row in reported) / prompts if prompts else None,
        }
    )


def _has_tpot(row: TrafficRow) -> bool:
    return None not in (row.first_token_after_s, row.finished_after_s) and (row.output_tokens or 0) > 1


def _tpot_s(row: TrafficRow) -> float:
    return ((row.finished_after_s or 0.0) - (row.first_token_after_s or 0.0)) / ((row.output_tokens or 2) - 1)
