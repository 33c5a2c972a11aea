"""Prints reports as tables: runs, changes of their fleets, and both arms of a canary with its guardrails."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from planning.trials.canary import guardrail_words
from planning.trials.comparison import FINE, SUSPECT, TOO_FEW, WORSE, GuardrailReading
from routing.values.prepared_struct import prepared

_COLUMNS: tuple[tuple[str, str, Callable[[float], str]], ...] = (
    ("QPS", "qps", lambda value: f"{value:.1f}"),
    ("on time", "slo_share", lambda value: f"{value:.1%}"),
    ("of tokens", "slo_token_share", lambda value: f"{value:.1%}"),
    ("TTFT p50", "ttft_p50_s", lambda value: f"{value:.2f} s"),
    ("p90", "ttft_p90_s", lambda value: f"{value:.2f} s"),
    ("p99", "ttft_p99_s", lambda value: f"{value:.1f} s"),
    ("hits", "token_hit_rate", lambda value: f"{value:.1%}"),
    ("CV", "mean_cv", lambda value: f"{value:.2f}"),
    ("goodput", "goodput_qps", lambda value: f"{value:.1f}"),
    ("both", "goodput_both_qps", lambda value: f"{value:.1f}"),
    ("wall", "wall_s", lambda value: f"{value:.2f} s"),
)


_MOST_CHANGES = 40
"""Maximum number of changes printed per run; the report contains all of them."""


def render_changes(reports: Sequence[dict[str, Any]]) -> str:
    """Return the changes that automations made to the fleets, one per line; empty if there are none."""
    lines: list[str] = []
    for report in reports:
        for run in report.get("seeds", [report]):
            detail = run.get("detail", {})
            changes = [_change(item) for item in detail.get("engine_changes", [])]
            if not changes:
                continue
            seed = f", seed {detail['seed']}" if "seeds" in report else ""
            lines += ["", f"{run['placement']} + {run['order']}{seed}: {len(changes)} changes of the fleet"]
            lines += changes[:_MOST_CHANGES]
            if len(changes) > _MOST_CHANGES:
                lines.append(f"  and {len(changes) - _MOST_CHANGES} more; --json OUT has them all")
    return "\n".join(lines)


def _change(change: dict[str, Any]) -> str:
    engine, role, at = change["engine_id"], change["role"], f"{change['at_s']:.0f} s"
    a_role = "" if role == "mixed" else f" as a {role} engine"
    said = {
        "added": f"{engine} added{a_role}",
        "removed": f"{engine} removed",
        "turned": f"{engine} turned into a {role} engine",
    }[change["what"]]
    return f"  {at:>8}  {said}"


def render(reports: Sequence[dict[str, Any]]) -> str:
    """Return a header and one line per report. A figure that no report has gets no column."""
    columns = [column for column in _COLUMNS if any(report.get(column[1]) is not None for report in reports)]
    rows = [["policy", *(title for title, _, _ in columns)]]
    for report in reports:
        cells = [f"{report['placement']} + {report['order']}"]
        for _, key, words in columns:
            value = report.get(key)
            cells.append("–" if value is None else words(value))
        rows.append(cells)
    return "\n".join(text_table(rows))


_ARM_COLUMNS: tuple[tuple[str, str, Callable[[float], str]], ...] = (
    ("requests", "requests", lambda value: f"{value:.0f}"),
    ("on time", "slo_share", lambda value: f"{value:.1%}"),
    ("TTFT mean", "ttft_mean_s", lambda value: f"{value:.2f} s"),
    ("p90", "ttft_p90_s", lambda value: f"{value:.2f} s"),
    ("hits", "token_hit_rate", lambda value: f"{value:.1%}"),
)
_VERDICTS = {
    FINE: "fine",
    SUSPECT: "may be worse, or chance",
    WORSE: "worse; a live canary would be given up",
    TOO_FEW: "too few requests to say",
}


def render_canaries(reports: Sequence[dict[str, Any]]) -> str:
    """Return both arms of each run with a canary, and the findings of the guardrails; empty if no run has a canary."""
    lines: list[str] = []
    for report in reports:
        for run in report.get("seeds", [report]):
            detail = run.get("detail", {})
            if detail.get("canary"):
                seed = f", seed {detail['seed']}" if "seeds" in report else ""
                lines += ["", *_canary(detail["canary"], seed)]
    return "\n".join(lines)


def _canary(canary: dict[str, Any], seed: str) -> list[str]:
    rows = [["arm", *(title for title, _, _ in _ARM_COLUMNS)]]
    for arm in canary["arms"]:
        cells = [f"{arm['arm']}, {arm['placement']}"]
        for _, key, words in _ARM_COLUMNS:
            cells.append("–" if arm[key] is None else words(arm[key]))
        rows.append(cells)
    readings = msgspec.convert(canary["comparison"]["readings"], prepared(tuple[GuardrailReading, ...]))
    return [
        f"Canary with {canary['share'] * 100:.3g} % of the sessions{seed}",
        *text_table(rows),
        "What its guardrails say (their mean is the geometric one):",
        *(f"  {guardrail_words(reading)}: {_VERDICTS[reading.verdict]}" for reading in readings),
    ]


def text_table(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return the rows as lines; the first column is left-aligned, the others right-aligned."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    pairs = [zip(row, widths, strict=True) for row in rows]
    return ["  ".join([first.ljust(width), *(cell.rjust(at) for cell, at in rest)]) for (first, width), *rest in pairs]
