"""One gateway's report on a shadow policy, for the control plane."""

from __future__ import annotations

import math

import msgspec

from gateway.contracts.shadow_tally import GAIN_RANGES, KEPT_SAMPLES, MAX_ENGINES, ShadowTally
from gateway.contracts.wire import MIB, WireForm

TOPIC = "shadow_reports"
"""Stream topic; values are encoded ShadowReports."""
_MAX_NAME = 128


class ShadowReport(msgspec.Struct, frozen=True, kw_only=True):
    """All counts of one part of a run. A later report on the same part replaces it."""

    pool_id: str
    run_id: str
    part: str
    """One run at one gateway. A restarted gateway begins another part."""
    at: float
    """Unix seconds."""
    tally: ShadowTally
    failed: str = ""
    """Why the shadow ended early, as a sentence; empty if it did not."""


def report_problem(report: ShadowReport) -> str:
    """Return the problem of a report with its path, empty for a valid report."""
    tally = report.tally
    names = (report.pool_id, report.run_id, report.part)
    if any(not 0 < len(name) <= _MAX_NAME for name in names):
        return "pool_id, run_id or part is empty or too long"
    if len(tally.gains) != GAIN_RANGES or len(tally.engines) > MAX_ENGINES or len(tally.sample) > KEPT_SAMPLES:
        return "tally has too many ranges, engines or samples"
    figures = [report.at, tally.gain_s, tally.expected_s, tally.measured_s, tally.cpu_s, tally.cpu_max_s]
    for item in tally.sample:
        for scored in (item.live, item.shadow):
            figures += (scored.wait_s, scored.compute_s, scored.cost)
    if not all(map(math.isfinite, figures)):
        return "a figure is not finite"
    counts = [tally.compared, tally.agreed, tally.unbound, tally.left_out, tally.answered, *tally.gains]
    if min(counts) < 0 or tally.agreed + sum(tally.gains) != tally.compared:
        return "counts are negative or do not add up"
    return ""


_report = WireForm(ShadowReport, "a shadow report", limit=16 * MIB, problem=report_problem)
encode_shadow_report, decode_shadow_report = _report.encode, _report.decode
