"""What a proposal rests on, as it is stored: predicted changes, who is worse off, windows, and what being wrong costs.

Its fields are its own, so that stored evidence stays readable when the search changes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import msgspec

from controlplane.trials.canary.lifecycle import DEFAULT_DWELL_S, DEFAULT_STEPS
from planning.adviser.calibration import widened
from planning.adviser.prediction import (
    DECIDING,
    OBJECTIVES,
    ON_TIME,
    AdviceObjective,
    GroupChange,
    Practical,
    PredictedChange,
    gain_of,
)
from planning.adviser.trace_windows import TraceWindow
from planning.adviser.verdict import Advice, PolicyCandidate, change_words, objections
from routing.values.counted import count
from routing.values.prepared_struct import prepared

if TYPE_CHECKING:
    # It imports the simulator, which pages do not need.
    from controlplane.advice.search_child import SearchResult

BY_NAME = {item.name: item for item in OBJECTIVES}
NOTABLE_FACTOR = 1.05
"""Smaller factors of ranges are not mentioned."""
SEARCHED, PREDICTED, CHECKED = "search", "prediction", "check"


class EvidenceChange(msgspec.Struct, frozen=True):
    """One objective, as planning.adviser.prediction.PredictedChange has it."""

    objective: str
    live: float
    proposed: float
    change: float
    low: float
    high: float
    checked: float | None = None


class EvidenceWindow(msgspec.Struct, frozen=True):
    """A window of recorded traffic. Times are in unix seconds."""

    use: str
    """SEARCHED, PREDICTED, or CHECKED."""
    kind: str
    begins_at: float
    ends_at: float
    requests: int
    prompt_tokens_per_s: float
    mean_prompt_tokens: float


class AdviceEvidence(msgspec.Struct, frozen=True, kw_only=True):
    """The evidence of a proposal; of an abstention, that of the best candidate, if there was one."""

    changes: tuple[EvidenceChange, ...] = ()
    worse: tuple[GroupChange, ...] = ()
    settings: dict[str, Any] = {}
    """Settings of the candidate that differ from the live policy, by path."""
    windows: tuple[EvidenceWindow, ...] = ()
    requests: int = 0
    requests_per_s: float = 0.0
    engines: int = 0
    engine_model: str = ""
    model_error: float | None = None
    candidates: int = 0
    runs: int = 0
    seeds: int = 0
    cpu_s: float = 0.0
    budget_s: float = 0.0
    cut_short: bool = False
    practical: Practical = Practical()
    factor: float = 1.0
    """By how much ranges were widened, because earlier ones were too narrow."""

    @property
    def widened(self) -> bool:
        """Whether ranges were widened visibly."""
        return self.factor >= NOTABLE_FACTOR

    @property
    def named(self) -> list[tuple[AdviceObjective, EvidenceChange]]:
        """The changes with their objectives."""
        return [(BY_NAME[item.objective], item) for item in self.changes if item.objective in BY_NAME]

    def gain(self, objective: AdviceObjective, change: float) -> float:
        """Return a change in units of its practical size, above 0 if it is better."""
        return gain_of(max(change, -0.999), objective, self.practical)


class CalibratedAdvice(msgspec.Struct, frozen=True):
    """A proposal whose ranges were widened, or the reason for none."""

    proposal: PolicyCandidate | None
    abstains: str
    evidence: AdviceEvidence


def calibrated(result: SearchResult, advice: Advice, factor: float) -> CalibratedAdvice:
    """Return the advice with ranges widened by the factor; it abstains where they then include no change."""
    proposal, abstains = advice.proposal, advice.abstains
    best = proposal or next(iter(advice.rejected), None)
    changes = tuple(widened(item, factor) for item in best.changes) if best is not None else ()
    if proposal is not None and (against := objections(changes, advice.practical)):
        proposal = None
        abstains = f"Earlier ranges were too narrow; {factor:.1f} times as wide, {against[0]}"
    return CalibratedAdvice(proposal, abstains, _evidence(result, advice, best, changes, factor))


def _evidence(
    result: SearchResult,
    advice: Advice,
    best: PolicyCandidate | None,
    changes: tuple[PredictedChange, ...],
    factor: float,
) -> AdviceEvidence:
    uses = ((SEARCHED, advice.windows.search), (PREDICTED, advice.windows.predict), (CHECKED, advice.windows.check))
    windows = tuple(_window(use, item, result.begins_at) for use, items in uses for item in items)
    span_s = sum(item.ends_at - item.begins_at for item in windows)
    return AdviceEvidence(
        changes=tuple(
            EvidenceChange(
                item.objective.name, item.live, item.proposed, item.change, item.low, item.high, item.measured
            )
            for item in changes
        ),
        worse=best.worse if best is not None else (),
        settings=dict(best.settings) if best is not None else {},
        windows=tuple(sorted(windows, key=lambda item: item.begins_at)),
        requests=result.requests,
        requests_per_s=sum(item.requests for item in windows) / span_s if span_s else 0.0,
        engines=result.engines,
        engine_model=result.engine_model,
        model_error=result.model_error,
        candidates=advice.candidates,
        runs=advice.runs,
        seeds=len(advice.seeds),
        cpu_s=advice.cpu_s,
        budget_s=advice.budget_s,
        cut_short=advice.cut_short,
        practical=advice.practical,
        factor=factor,
    )


def _window(use: str, item: TraceWindow, begins_at: float) -> EvidenceWindow:
    return EvidenceWindow(
        use,
        item.kind,
        begins_at + item.from_s,
        begins_at + item.to_s,
        item.requests,
        item.prompt_tokens_per_s,
        item.mean_prompt_tokens,
    )


def evidence_of(stored: Any) -> AdviceEvidence:
    """Return stored evidence."""
    return msgspec.convert(stored, prepared(AdviceEvidence))


def digest_of(base: int, document: Any, evidence: AdviceEvidence) -> str:
    """Return the name of the evidence: versions and windows. Times of a window are rounded to seconds."""
    windows = [(item.use, round(item.begins_at), round(item.ends_at), item.requests) for item in evidence.windows]
    return hashlib.sha256(msgspec.json.encode((base, document, windows), order="deterministic")).hexdigest()


def cost_of_being_wrong(evidence: AdviceEvidence) -> list[str]:
    """Return what the worst ends of the ranges would cost, and what limits that."""
    per_h = evidence.requests_per_s * 3600
    lines = []
    for objective, item in evidence.named:
        if objective.name == ON_TIME:
            late = max(0.0, -item.low) * per_h
            lines.append(
                f"At the worst end of the range, {late:,.0f} more late requests per hour of {per_h:,.0f}."
                if late >= 1
                else f"Even at the worst end of the range, no more late requests per hour of {per_h:,.0f}."
            )
    losses = [
        f"{objective.title} {change_words(item.low if objective.more_is_better else item.high, objective)}"
        for objective, item in evidence.named
        if evidence.gain(objective, item.low if objective.more_is_better else item.high) <= -1
    ]
    if losses:
        lines.append(f"Worst ends beyond a practical size: {', '.join(losses)}.")
    exposed = DEFAULT_STEPS[0] * DEFAULT_DWELL_S * evidence.requests_per_s
    lines.append(
        f"A canary shows {count(round(exposed), 'request')} to it in its first {DEFAULT_DWELL_S:.0f} s before a "
        "guardrail decides; a rollback after a publish takes one step."
    )
    return lines


def what_would_change_it(evidence: AdviceEvidence) -> Iterator[str]:
    """Yield the findings that would end or contradict the proposal."""
    for objective, item in evidence.named:
        if objective.name in DECIDING and evidence.gain(objective, item.change) >= 1:
            worse_end = item.low if objective.more_is_better else item.high
            yield (
                f"{objective.title}: a change worse than {change_words(worse_end, objective)} in further windows, "
                f"beyond the range around {change_words(item.change, objective)}."
            )
    if evidence.windows:
        rates = [item.prompt_tokens_per_s for item in evidence.windows]
        means = [item.mean_prompt_tokens for item in evidence.windows]
        yield (
            f"Traffic unlike the windows: outside {min(rates):,.0f} to {max(rates):,.0f} prompt tokens per second, "
            f"or a mean prompt outside {min(means):,.0f} to {max(means):,.0f} tokens."
        )
    yield "A guardrail of its canary that breaks, or a holdback against which the on-time share falls."
    yield "Another version that goes live, or other engines: the prediction is against the present ones."
