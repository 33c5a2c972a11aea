"""Shows reports as a table for people."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

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


def render(reports: Sequence[dict[str, Any]]) -> str:
    """Return one line per report under a head; a figure that no report has gets no column."""
    columns = [column for column in _COLUMNS if any(report.get(column[1]) is not None for report in reports)]
    rows = [["policy", *(title for title, _, _ in columns)]]
    for report in reports:
        cells = [f"{report['placement']} + {report['order']}"]
        for _, key, words in columns:
            value = report.get(key)
            cells.append("–" if value is None else words(value))
        rows.append(cells)
    widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
    return "\n".join(
        "  ".join(
            [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        )
        for row in rows
    )
