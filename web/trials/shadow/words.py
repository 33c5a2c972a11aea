"""Shadow results in words: the finding and the figures."""

from __future__ import annotations

from controlplane.platform.format import NARROW_SPACE, count, duration, or_dash, percent, signed
from controlplane.trials.models.shadow import Shadow, ShadowState
from controlplane.trials.shadow.reading import ShadowFigures
from controlplane.trials.whatif.finding import BETTER, EVEN, WORSE
from web.trials.words import TrialFinding

ENOUGH = 100
"""Minimum number of requests for a verdict."""
_LEAST_S = 0.001
_LEAST_SHARE = 0.001
_PARTS = {
    "order": "queue order",
    "dispatch_limit": "pushing",
    "admission": "admission",
    "fairness": "fairness",
    "cost": "learned estimates",
    "ttft_slo_s": "TTFT objective",
    "slo_classes": "SLO classes",
    "prefill_window_tokens": "prefill window",
    "lookahead_s": "look-ahead",
    "decode_cost": "decode cost",
}


def finding(shadow: Shadow, figures: ShadowFigures) -> TrialFinding:
    """Return the result of the comparisons so far."""
    tally, draft, base = figures.tally, shadow.draft.number, shadow.base.number
    if shadow.state == ShadowState.FAILED:
        return TrialFinding("", "The shadow failed", shadow.reason)
    if not tally.compared:
        return TrialFinding("", *_nothing(shadow, figures))
    if tally.compared < ENOUGH and shadow.state == ShadowState.RUNNING:
        words = f"{count(tally.compared, 'request')} compared; a finding needs {ENOUGH}."
        return TrialFinding("", "Too few requests yet", words)
    share, gain_s = figures.disagreed / tally.compared, figures.mean_gain_s or 0.0
    if share < _LEAST_SHARE:
        other = "the other router" if shadow.observed else f"v{base}"
        words = f"v{draft} chose the same engine as {other} for {count(tally.agreed, 'request')} of {tally.compared:,}."
        return TrialFinding(EVEN, "Same choices on this traffic", words)
    where = f"v{draft} would have sent {percent(share)} of requests to other engines; their predicted TTFT is "
    mean_s = tally.gain_s / figures.disagreed
    if abs(gain_s) < _LEAST_S:
        return TrialFinding(EVEN, "Different engines, the same TTFT", f"{where}the same within {duration(_LEAST_S)}.")
    sooner = gain_s > 0
    title = f"Predicted TTFT {duration(abs(gain_s))} {'shorter' if sooner else 'longer'} per request"
    words = f"{where}{duration(abs(mean_s))} {'shorter' if sooner else 'longer'} on average{_tokens_words(figures)}."
    return TrialFinding(BETTER if sooner else WORSE, title, words)


def tiles(figures: ShadowFigures) -> list[dict[str, str]]:
    """Return the figures above the charts: label, number, unit, and a line of context."""
    tally = figures.tally
    low, middle, high = (figures.gain_quantile_s(number) for number in (0.1, 0.5, 0.9))
    spread = f"p10 {_gain(low)}, p90 {_gain(high)}" if low is not None and high is not None else "no disagreement yet"
    cpu_s = figures.cpu_s
    longest = f"longest {duration(tally.cpu_max_s)}" if cpu_s is not None else "shadow only"
    return [
        _tile("Agreement", percent(figures.agreement), f"{tally.agreed:,} of {tally.compared:,} requests"),
        _tile("Gain per request", _gain(figures.mean_gain_s), "mean over all, in predicted TTFT"),
        _tile("Gain where they differ", _gain(middle), f"median; {spread}"),
        _tile("Cached tokens", or_dash(figures.mean_gain_hit_tokens, _signed_tokens), "mean per request, predicted"),
        _tile("CPU per choice", duration(cpu_s), longest),
        _tile("Not compared", f"{tally.left_out + tally.unbound:,}", _left_out_words(figures)),
    ]


def _tile(label: str, figure: str, context: str) -> dict[str, str]:
    number, gap, unit = figure.rpartition(NARROW_SPACE)
    return {"label": label, "number": number if gap else figure, "unit": unit if gap else "", "context": context}


def uncompared_words(figures: ShadowFigures) -> str:
    """Return the parts of the policy that a shadow cannot judge; empty if there are none."""
    parts = [_PARTS.get(item, item.replace("_", " ")) for item in figures.uncompared]
    if not parts:
        return ""
    named = parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"
    return f"Also different: {named}. A shadow compares single choices and cannot compare these; run a what-if."


def fidelity_words(figures: ShadowFigures) -> str:
    """Return the prediction error for the engines that actually served the requests; empty if not known yet."""
    expected_s, measured_s = figures.expected_s, figures.measured_s
    if expected_s is None or measured_s is None:
        return ""
    answered = count(figures.tally.answered, "compared request")
    return f"Measured mean TTFT of {answered}: {duration(measured_s)}; predicted: {duration(expected_s)}."


def _gain(value_s: float | None) -> str:
    """Return a time gain with its sign; a dash if unknown."""
    return f"{'+' if value_s and value_s > 0 else ''}{duration(value_s)}"


def _nothing(shadow: Shadow, figures: ShadowFigures) -> tuple[str, str]:
    if figures.tally.unbound:
        words = (
            f"{count(figures.tally.unbound, 'request')} were queued without an engine; there is no choice to compare."
        )
        return "Nothing to compare", words
    if shadow.state == ShadowState.RUNNING:
        if shadow.observed:
            words = "Report requests with POST /api/v1/observe; the comparison follows about a minute later."
            return "Waiting for observations", words
        return "Waiting for requests", f"v{shadow.draft.number} will be compared with v{shadow.base.number}."
    return "No requests", "The shadow ended before it compared a request."


def _tokens_words(figures: ShadowFigures) -> str:
    tokens = figures.tally.gain_hit_tokens / figures.disagreed
    if abs(tokens) < 1:
        return ""
    return ", with " + count(round(abs(tokens)), f"{'more' if tokens > 0 else 'fewer'} cached token")


def _left_out_words(figures: ShadowFigures) -> str:
    tally = figures.tally
    parts = [f"{tally.left_out:,} above the rate limit"]
    if tally.unbound:
        parts.append(f"{tally.unbound:,} unbound")
    return ", ".join(parts)


def _signed_tokens(value: float) -> str:
    return f"{signed(value, 0)}{NARROW_SPACE}tok"
