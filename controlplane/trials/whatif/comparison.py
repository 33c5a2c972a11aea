"""Builds the result of a what-if from the reports of its runs and the recording. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec

from controlplane.request_log.recordings.recorded_row import REJECTED, RecordedRow
from controlplane.request_log.recordings.statistics import FAILURES, JUDGED
from controlplane.trials.whatif import result as names
from controlplane.trials.whatif.result import Band, Difference, Side, Spread
from simulator.percentile import percentile
from simulator.runs.run_report import LengthBand, RunDetail, RunReport, length_bands, quantiles

LEAST_OWN_SHARE = 0.9
"""Minimum share of the recording decided by a version for it to count as the recording's version."""


def side_of(reports: Sequence[RunReport]) -> Side:
    """Return one policy's figures across its seeds."""
    figures = [figures_of(report) for report in reports]
    curves = [detail_of(report).ttft_quantiles_s for report in reports]
    whole = [curve for curve in curves if curve]
    return Side(
        figures={
            name: spread([item[name] for item in figures]) for name in names.FIGURES if all(name in t for t in figures)
        },
        ttft_quantiles_s=[sum(item) / len(item) for item in zip(*whole, strict=True)],
        answered_share=sum(_answered(report) for report in reports) / len(reports),
    )


def figures_of(report: RunReport) -> dict[str, float]:
    """Return the report's figures by the names in `result`. Unknown figures are omitted."""
    counted = detail_of(report).counted
    failed, rejected = (number / counted if counted else 0.0 for number in (detail_of(report).failed, report.rejected))
    known: dict[str, float | None] = {
        names.ON_TIME: report.slo_share,
        # Unfinished requests are late.
        names.LATE: None if report.slo_share is None else max(0.0, 1.0 - report.slo_share - failed - rejected),
        names.FAILED: failed,
        names.REJECTED: rejected,
        names.TTFT_MEAN: report.ttft_mean_s,
        names.TTFT_P50: report.ttft_p50_s,
        names.TTFT_P90: report.ttft_p90_s,
        names.TTFT_P99: report.ttft_p99_s,
        names.HIT_RATE: report.token_hit_rate,
        names.CV: report.mean_cv,
        names.GOODPUT: None if report.goodput_qps is msgspec.UNSET else report.goodput_qps,
    }
    return {name: value for name, value in known.items() if value is not None}


def differences_of(base: Sequence[RunReport], draft: Sequence[RunReport]) -> list[Difference]:
    """Return the difference of each figure, compared by seed."""
    pairs = [(figures_of(one), figures_of(other)) for one, other in zip(base, draft, strict=True)]
    made = []
    for name in names.FIGURES:
        if not all(name in one and name in other for one, other in pairs):
            continue
        changes = [other[name] - one[name] for one, other in pairs]
        sign = 1 if name in names.MORE_IS_BETTER else -1
        made.append(
            Difference(
                figure=name,
                base=spread([one[name] for one, _ in pairs]),
                draft=spread([other[name] for _, other in pairs]),
                change=spread(changes),
                better=sum(sign * change > 0 for change in changes),
                worse=sum(sign * change < 0 for change in changes),
            )
        )
    return made


def bands_of(base: Sequence[RunReport], draft: Sequence[RunReport], actual: Sequence[LengthBand] | None) -> list[Band]:
    """Return the shares on time by prompt length. All runs have the same requests and therefore the same bands."""
    base_bands, draft_bands = ([detail_of(report).bands for report in reports] for reports in (base, draft))
    made = []
    for index, band in enumerate(base_bands[0]):
        happened = actual[index] if actual is not None and index < len(actual) else None
        made.append(
            Band(
                from_tokens=band.from_tokens,
                to_tokens=band.to_tokens,
                requests=band.requests,
                base=spread([base_band[index].slo_share for base_band in base_bands]),
                draft=spread([draft_band[index].slo_share for draft_band in draft_bands]),
                actual=happened.slo_share if happened is not None else None,
            )
        )
    return made


def what_happened(
    rows: Sequence[RecordedRow], ttft_slo_s: float, unread: int = 0
) -> tuple[Side, list[LengthBand]] | None:
    """Return the recorded outcome of the counted rows, judged by the same objective; None if it is not recorded.

    `unread` further requests were rejected before their prompts were read. Shares leave out canceled and invalid
    requests, which are no evidence about a policy.
    """
    if not rows or not all(row.outcome for row in rows):
        return None
    good = [row.outcome == "completed" and row.ttft_s is not None and row.ttft_s <= ttft_slo_s for row in rows]
    judged = sum(row.outcome in JUDGED for row in rows) + unread
    failed = sum(row.outcome in FAILURES for row in rows)
    rejected = sum(row.outcome == REJECTED for row in rows) + unread
    ttfts = sorted(row.ttft_s for row in rows if row.ttft_s is not None)
    reported = [row for row in rows if row.cached_tokens is not None]
    tokens = sum(row.input_length for row in reported)
    known: dict[str, float | None] = {
        names.ON_TIME: sum(good) / judged if judged else None,
        names.LATE: (judged - sum(good) - failed - rejected) / judged if judged else None,
        names.FAILED: failed / judged if judged else None,
        names.REJECTED: rejected / judged if judged else None,
        names.TTFT_MEAN: sum(ttfts) / len(ttfts) if ttfts else None,
        names.TTFT_P50: percentile(ttfts, 50),
        names.TTFT_P90: percentile(ttfts, 90),
        names.TTFT_P99: percentile(ttfts, 99),
        names.HIT_RATE: sum(row.cached_tokens or 0 for row in reported) / tokens if tokens else None,
    }
    figures = {name: Spread(value, value, value) for name, value in known.items() if value is not None}
    side = Side(figures=figures, ttft_quantiles_s=quantiles(ttfts), answered_share=len(ttfts) / (len(rows) + unread))
    return side, length_bands([(row.input_length, met) for row, met in zip(rows, good, strict=True)])


def own_ttft_s(rows: Sequence[RecordedRow], version: int) -> float | None:
    """Return the recorded mean time to first token; None unless this version decided nearly all requests."""
    ttfts = [row.ttft_s for row in rows if row.ttft_s is not None]
    own = sum(row.policy_version == version for row in rows)
    mean_s = sum(ttfts) / len(ttfts) if ttfts else 0.0
    return mean_s if own >= LEAST_OWN_SHARE * len(rows) and mean_s > 0 else None


def model_error(checked: Side, actual_ttft_s: float | None) -> float | None:
    """Return the relative error of the side's mean TTFT compared with the recorded one; None if that is unknown."""
    simulated = checked.figures.get(names.TTFT_MEAN)
    return None if actual_ttft_s is None or simulated is None else abs(simulated.mean / actual_ttft_s - 1)


def closest(trials: Sequence[RunReport], actual_ttft_s: float) -> int:
    """Return the index of the trial whose mean TTFT has the ratio to the recorded one closest to 1.

    The first wins ties.
    """

    def miss(number: int) -> float:
        simulated = trials[number].ttft_mean_s
        return abs(math.log(simulated / actual_ttft_s)) if simulated else math.inf

    return min(range(len(trials)), key=miss)


def spread(values: Sequence[float]) -> Spread:
    """Return mean and range."""
    return Spread(sum(values) / len(values), min(values), max(values))


def detail_of(report: RunReport) -> RunDetail:
    """Return the report's detail, which every run of a what-if includes."""
    if report.detail is msgspec.UNSET:
        raise ValueError("the report has no detail")
    return report.detail


def _answered(report: RunReport) -> float:
    detail = detail_of(report)
    return 1 - (report.rejected + detail.unfinished + detail.failed) / detail.counted if detail.counted else 0.0
