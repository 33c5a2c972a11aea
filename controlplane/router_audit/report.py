"""Writes an audit as one HTML file without external resources: a pure function of the audit."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec
from django.template import Context, Engine

from controlplane.platform.format import UNKNOWN, duration, percent, plain, span, whole
from controlplane.router_audit.audit import AssumedOutcome, AuditResult, RunFigures
from planning.router_audit.audit_summary import (
    BUSY,
    CACHE,
    EVICTED,
    GROWTH,
    AuditedDecision,
    FigureRange,
    figure_range,
)
from planning.router_audit.log_gaps import LogGap
from planning.router_audit.logged_request import RequestLog
from routing.values.counted import count

_TEMPLATES = Path(__file__).resolve().parents[2] / "templates"
_CAUSE_WORDS = {
    CACHE: ("Cache", "The other engine held more of the prompt."),
    BUSY: ("Load", "The other engine had less work before it."),
    GROWTH: ("Growth", "The engine's queue grew more after the decision than was expected."),
    EVICTED: ("Eviction", "Blocks that the engine was expected to hold were no longer cached."),
}
_COST_WORDS = {
    "profile": "from the given profile",
    "fitted": "fitted to prefills in the log that had their engine to themselves",
    "scaled": "the reference engine's, scaled to the times in the log",
    "assumed": "the reference engine's; the log has no times to compare with",
}
_CACHE_WORDS = {"fitted": "fitted to the cached tokens in the log", "assumed": "assumed"}


class AuditSource(msgspec.Struct, frozen=True):
    """Where an audit comes from."""

    log: RequestLog
    files: tuple[tuple[str, str], ...]
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
    engine = Engine(dirs=[_TEMPLATES])
    # Only text is passed, so that no setting of Django influences the report.
    context = Context(
        {
            "source": _source_words(source),
            "verdict": verdict(result),
            "tiles": _tiles(result),
            "runs": _runs(result.outcomes),
            "causes": _causes(result),
            "slices": _slices(result.summary.per_slice),
            "worst": [_decision(item) for item in result.summary.worst],
            "engines": _engines(result),
            "assumptions": [_outcome(item) for item in result.outcomes],
            "rebuilt": _rebuilt(result),
            "gaps": [
                {"fact": gap.fact, "missing": f"{whole(gap.missing)} of {whole(gap.total)}", "assumed": gap.assumed}
                for gap in source.gaps
            ],
            "lines": _line_words(source.log),
        },
        use_l10n=False,
        use_tz=False,
    )
    rendered: str = engine.get_template("router_audit/report.html").render(context)
    return rendered


def verdict(result: AuditResult) -> str:
    """Return the result in one or two sentences."""
    best, gain = result.outcomes[0], result.gain_s
    both = f"{duration(best.default.ttft_s)} instead of {duration(best.logged.ttft_s)}"
    over = f"The range over all assumptions is {ranged(gain, duration)}."
    if gain.low > 0:
        return f"Headway's default would have answered sooner: a mean time to first token of {both}. {over}"
    if gain.high < 0:
        return f"The audited router was better than Headway's default would have been: {both} on average. {over}"
    return f"Whether Headway's default would have answered sooner is not certain: {both} on average. {over}"


def ranged(figure: FigureRange, words: Callable[[float], str]) -> str:
    """Return the ends of a range."""
    return f"{words(figure.low)} to {words(figure.high)}"


def _source_words(source: AuditSource) -> dict[str, object]:
    return {
        "files": [f"{name} ({file_format})" for name, file_format in source.files],
        "requests": count(source.requests, "request"),
        "span": span(source.span_s),
        "rule": source.rule,
        "left_out": count(source.left_out, "later request") if source.left_out else "",
    }


def _tiles(result: AuditResult) -> list[dict[str, str]]:
    summary, regret = result.summary, result.regret_s
    mean = FigureRange(*(value / summary.decisions for value in (regret.value, regret.low, regret.high)))
    return [
        {"name": "Regret in total", "value": duration(regret.value), "note": f"range {ranged(regret, duration)}"},
        {"name": "Regret per request", "value": duration(mean.value), "note": f"range {ranged(mean, duration)}"},
        {
            "name": "Decisions with regret",
            "value": percent(summary.regretted / summary.decisions),
            "note": f"{whole(summary.regretted)} of {whole(summary.decisions)}",
        },
        {
            "name": "Same choice as Headway's default",
            "value": percent(summary.agreed / summary.decisions),
            "note": "in the state that the audited router had caused",
        },
    ]


def _runs(outcomes: Sequence[AssumedOutcome]) -> list[dict[str, str]]:
    figures: tuple[tuple[str, Callable[[RunFigures], float], Callable[[float], str]], ...] = (
        ("Mean time to first token", lambda run: run.ttft_s, duration),
        ("95th percentile", lambda run: run.ttft_p95_s, duration),
        ("On time", lambda run: run.on_time, percent),
        ("Prompt tokens in cache", lambda run: run.hits, percent),
    )
    rows = []
    for name, of, words in figures:
        logged = figure_range(of(outcome.logged) for outcome in outcomes)
        default = figure_range(of(outcome.default) for outcome in outcomes)
        rows.append(
            {
                "name": name,
                "logged": words(logged.value),
                "logged_range": ranged(logged, words),
                "default": words(default.value),
                "default_range": ranged(default, words),
            }
        )
    return rows


def _causes(result: AuditResult) -> list[dict[str, str]]:
    causes = result.summary.causes
    total = sum(causes.values()) or 1.0
    return [
        {
            "name": _CAUSE_WORDS[cause][0],
            "meaning": _CAUSE_WORDS[cause][1],
            "seconds": duration(seconds),
            "share": percent(seconds / total),
            "width": f"{100 * seconds / total:.1f}",
        }
        for cause, seconds in sorted(causes.items(), key=lambda item: -item[1])
    ]


def _slices(per_slice: Sequence[float]) -> list[dict[str, str]]:
    """Return the bars of the chart, in a box of 960 × 100."""
    most, width = max(per_slice) or 1.0, 960 / len(per_slice)
    return [
        {
            "x": f"{index * width + 1:.1f}",
            "y": f"{100 - 100 * seconds / most:.1f}",
            "width": f"{width - 2:.1f}",
            "height": f"{100 * seconds / most:.1f}",
            "title": duration(seconds),
        }
        for index, seconds in enumerate(per_slice)
    ]


def _decision(item: AuditedDecision) -> dict[str, str]:
    cause = max(item.parts, key=lambda name: item.parts[name])
    return {
        "request": item.request_id,
        "at": span(item.at_s),
        "prompt": whole(item.prompt_tokens),
        "engine": item.engine,
        "hit": whole(item.hit_tokens),
        "ttft": duration(item.ttft_s),
        "better": item.better_engine,
        "better_hit": whole(item.better_hit_tokens),
        "better_ttft": duration(item.better_ttft_s),
        "regret": duration(item.regret_s),
        "cause": _CAUSE_WORDS[cause][0],
        "default": item.default_engine or UNKNOWN,
    }


def _engines(result: AuditResult) -> list[dict[str, str]]:
    return [
        {
            "engine": item.engine,
            "requests": whole(item.requests),
            "share": percent(item.requests / result.summary.decisions),
            "prompt": whole(item.prompt_tokens),
            "hits": percent(item.hit_tokens / item.prompt_tokens),
            "regret": duration(item.regret_s),
        }
        for item in result.summary.engines
    ]


def _outcome(item: AssumedOutcome) -> dict[str, str]:
    return {
        "name": item.name,
        "logged": duration(item.logged.ttft_s),
        "default": duration(item.default.ttft_s),
        "gain": duration(item.gain_s),
        "regret": duration(item.regret_s),
    }


def _rebuilt(result: AuditResult) -> list[tuple[str, str]]:
    profile, fit = result.fit.assumed.profile, result.fit
    logged_hits = UNKNOWN if result.logged_hits is None else percent(result.logged_hits)
    bias = UNKNOWN if result.bias is None else f"the simulated one × {plain(result.bias)}"
    prefill = duration(profile.prefill_s(8192, 0))
    return [
        ("Engine model", fit.assumed.engine_model),
        ("Prefill of 8,192 tokens", f"{prefill}, {_COST_WORDS[fit.costs]}; ± {percent(fit.spread)}"),
        ("Cache", f"{count(profile.num_blocks * profile.block_tokens, 'token')}, {_CACHE_WORDS[fit.cache]}"),
        ("Mean time to first token in the log", bias),
        ("Prompt tokens in cache, in the log", logged_hits),
        ("Prompt tokens in cache, simulated", percent(result.outcomes[0].logged.hits)),
    ]


def _line_words(log: RequestLog) -> dict[str, object]:
    rest = log.unusable - len(log.problems)
    return {
        "read": count(log.lines, "line"),
        "unusable": count(log.unusable, "line") if log.unusable else "",
        "problems": [{"where": problem.where, "reason": problem.reason} for problem in log.problems],
        "rest": count(rest, "further line") if rest else "",
        "others": [{"what": what, "lines": whole(lines)} for what, lines in sorted(log.others.items())],
    }
