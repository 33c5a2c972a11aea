"""Prints both arms of a run, and the findings of their guardrails, as a table."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from planning.trials.canary import guardrail_words
from planning.trials.comparison import FINE, SUSPECT, TOO_FEW, WORSE, GuardrailReading
from routing.values.prepared_struct import prepared
from simulator.text_table import text_table

_COLUMNS: tuple[tuple[str, str, Callable[[float], str]], ...] = (
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
    rows = [["arm", *(title for title, _, _ in _COLUMNS)]]
    for arm in canary["arms"]:
        cells = [f"{arm['arm']}, {arm['placement']}"]
        for _, key, words in _COLUMNS:
            cells.append("–" if arm[key] is None else words(arm[key]))
        rows.append(cells)
    readings = msgspec.convert(canary["comparison"]["readings"], prepared(tuple[GuardrailReading, ...]))
    return [
        f"Canary with {canary['share'] * 100:.3g} % of the sessions{seed}",
        *text_table(rows),
        "What its guardrails say (their mean is the geometric one):",
        *(f"  {guardrail_words(reading)}: {_VERDICTS[reading.verdict]}" for reading in readings),
    ]
