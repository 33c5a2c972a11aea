"""Writes an audit as one HTML file without external resources: a pure function of the audit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
from django.template import Context, Engine

from controlplane.platform.format import duration, or_dash, percent
from controlplane.router_audit.audit import AuditResult, RunFigures
from controlplane.router_audit.report_filters import CAUSE_WORDS, ends
from planning.router_audit.audit_summary import figure_range
from planning.router_audit.log_gaps import LogGap
from planning.router_audit.logged_request import RequestLog
from routing.values.counted import count

_TEMPLATES = Path(__file__).resolve().parents[2] / "templates"
_COSTS = {
    "profile": "from the given profile",
    "fitted": "fitted to prefills in the log that had their engine to themselves",
    "scaled": "the reference engine's, scaled to the times in the log",
    "assumed": "the reference engine's; the log has no times to compare with",
}
_CACHES = {"fitted": "fitted to the cached tokens in the log", "assumed": "assumed"}
_FIGURES: tuple[tuple[str, str, Callable[[float], str]], ...] = (
    ("Mean time to first token", "ttft_s", duration),
    ("95th percentile", "ttft_p95_s", duration),
    ("On time", "on_time", percent),
    ("Prompt tokens in cache", "hits", percent),
)
_CHART = 960.0, 100.0


class AuditSource(msgspec.Struct, frozen=True):
    """Where an audit comes from."""

    log: RequestLog
    files: tuple[str, ...]
    """Name and format of each log."""
    gaps: Sequence[LogGap]
    requests: int
    span_s: float
    rule: str
    """The rule that placed requests whose engine is not logged; empty: all engines are logged."""
    left_out: int = 0
    """Requests after the limit."""


def report_html(source: AuditSource, result: AuditResult) -> str:
    """Return the report."""
    engine = Engine(dirs=[_TEMPLATES], builtins=["controlplane.router_audit.report_filters"])
    causes = sorted(result.summary.causes.items(), key=lambda item: -item[1])
    values = {
        "source": source,
        "result": result,
        "summary": result.summary,
        "title": (finding := _finding(result))[0],
        "detail": finding[1],
        "most_s": max(result.summary.per_slice),
        "slice_s": source.span_s / len(result.summary.per_slice),
        "regrets": [
            ("Regret in total", result.regret_s),
            ("Regret per request", result.regret_s.divided(result.summary.decisions)),
        ],
        "runs": [_run_words(result, *figure) for figure in _FIGURES],
        "causes": [(*CAUSE_WORDS[cause], seconds) for cause, seconds in causes],
        "bars": _bars(result.summary.per_slice),
        "rebuilt": _rebuilt(result),
        "unlisted": source.log.unusable - len(source.log.problems),
        "others": sorted(source.log.others.items()),
    }
    # Every number passes a filter, so that no setting of Django influences the report.
    rendered: str = engine.get_template("router_audit/report.html").render(Context(values, use_l10n=False))
    return rendered


def verdict(result: AuditResult) -> str:
    """Return the result in three sentences."""
    return "{}. {}".format(*_finding(result))


def _finding(result: AuditResult) -> tuple[str, str]:
    """Return the result as a title and its figures."""
    best, gain = result.outcomes[0], result.gain_s
    both = f"a mean time to first token of {duration(best.default.ttft_s)} instead of {duration(best.logged.ttft_s)}"
    detail = f"It would have had {both}. The difference is {duration(gain.value)}, within {ends(gain)}."
    if gain.low > 0:
        return "Headway's default would have answered sooner", detail
    if gain.high < 0:
        return "Headway's default would have answered later", detail
    return "Whether Headway's default would have answered sooner is not certain", detail


def _run_words(
    result: AuditResult, name: str, field: str, words: Callable[[float], str]
) -> tuple[str, list[tuple[str, str]]]:
    """Return a figure's name, and its value and range as logged and by default."""

    def cell(runs: Sequence[RunFigures]) -> tuple[str, str]:
        figure = figure_range(getattr(run, field) for run in runs)
        return words(figure.value), ends(figure, words)

    outcomes = result.outcomes
    return name, [cell([item.logged for item in outcomes]), cell([item.default for item in outcomes])]


def _bars(per_slice: Sequence[float]) -> list[tuple[str, str, str, str, float]]:
    """Return x, y, width, and height of each bar in the chart's box, and its seconds."""
    width, height = _CHART[0] / len(per_slice), _CHART[1] / (max(per_slice) or 1.0)
    return [
        (
            f"{index * width + 1:.1f}",
            f"{_CHART[1] - seconds * height:.1f}",
            f"{width - 2:.1f}",
            f"{seconds * height:.1f}",
            seconds,
        )
        for index, seconds in enumerate(per_slice)
    ]


def _rebuilt(result: AuditResult) -> list[tuple[str, str]]:
    fit, profile = result.fit, result.fit.assumed.profile
    return [
        ("Engine model", fit.assumed.engine_model),
        ("Prefill of 8,192 tokens", f"{duration(profile.prefill_s(8192, 0))}, {_COSTS[fit.costs]}"),
        ("Cache", f"{count(profile.num_blocks * profile.block_tokens, 'token')}, {_CACHES[fit.cache]}"),
        ("Mean time to first token, logged minus simulated", or_dash(result.miss_s, duration)),
        ("Prompt tokens in cache, logged", or_dash(result.logged_hits, percent)),
        ("Prompt tokens in cache, simulated", percent(result.outcomes[0].logged.hits)),
        ("Sampling error of the gain (90 %)", f"± {duration(result.sampling_s)}"),
    ]
