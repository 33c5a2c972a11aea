"""The results of both arms of a run, and whether the canary did worse, judged like a live canary."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from planning.documents.guardrail_document import GuardrailDocument
from planning.trials.arm_window import ArmTally
from planning.trials.comparison import ArmSlice, Comparison, compare
from routing.trials.arms import CANARY, LIVE, Arms
from simulator.fleet.request_record import FAILED, FINISHED, REJECTED, UNFINISHED, RequestRecord
from simulator.percentile import percentile

SLICE_S = 2.0
"""Seconds per time slice; both arms are compared within the same slice, as in the control plane."""


class CanaryArmFigures(msgspec.Struct, frozen=True, kw_only=True):
    """One arm. Shares are 0..1 of its requests or their prompt tokens; None if no request was served."""

    arm: str
    """live or canary."""
    placement: str
    requests: int
    slo_share: float | None
    ttft_mean_s: float | None
    ttft_p90_s: float | None
    token_hit_rate: float | None
    rejected: int
    failed: int


class CanaryReport(msgspec.Struct, frozen=True, kw_only=True):
    """Both arms after the warm-up, and a canary's guardrails with their default thresholds."""

    share: float
    """Requested share of sessions for the canary."""
    arms: tuple[CanaryArmFigures, ...]
    """The arms, the live one first."""
    comparison: Comparison


def canary_report(arms: Arms, live: str, records: Sequence[RequestRecord], good: Sequence[bool]) -> CanaryReport | None:
    """Return the comparison, None without a canary. `live` is the live placement, `good` are the on-time requests."""
    entry = next((arm.entry for arm in arms.candidate_arms or () if arm.entry.arm == CANARY), None)
    if entry is None:
        return None
    names = [arms.name_of(record.request) for record in records]
    return CanaryReport(
        share=entry.share,
        arms=tuple(
            _figures(arm, placement, [item for item in zip(records, good, names, strict=True) if item[2] == arm])
            for arm, placement in ((LIVE, live), (CANARY, entry.placement.name))
        ),
        comparison=compare(_slices(records, good, names), GuardrailDocument()),
    )


def _figures(arm: str, placement: str, judged: Sequence[tuple[RequestRecord, bool, str]]) -> CanaryArmFigures:
    records = [record for record, _, _ in judged]
    ttfts = sorted(item.ttft_s for item in records if item.ttft_s is not None)
    served = [(item.hit_tokens, item.request.prompt_tokens) for item in records if item.hit_tokens is not None]
    prompt_tokens = sum(tokens for _, tokens in served)
    return CanaryArmFigures(
        arm=arm,
        placement=placement,
        requests=len(records),
        slo_share=sum(met for _, met, _ in judged) / len(records) if records else None,
        ttft_mean_s=sum(ttfts) / len(ttfts) if ttfts else None,
        ttft_p90_s=percentile(ttfts, 90),
        token_hit_rate=sum(hits for hits, _ in served) / prompt_tokens if prompt_tokens else None,
        rejected=sum(item.status == REJECTED for item in records),
        failed=sum(item.status == FAILED for item in records),
    )


def _slices(records: Sequence[RequestRecord], good: Sequence[bool], names: Sequence[str]) -> list[ArmSlice]:
    """Return both arms per time slice. A request counts at its first token, or at its arrival if it had none."""
    tallies: dict[int, tuple[ArmTally, ArmTally]] = {}
    for record, met, name in zip(records, good, names, strict=True):
        at_s = record.request.arrived_s if record.first_token_s is None else record.first_token_s
        live, tried = tallies.setdefault(int(at_s // SLICE_S), (ArmTally(), ArmTally()))
        _count(tried if name == CANARY else live, record, met)
    return [ArmSlice(live.window(), tried.window()) for _, (live, tried) in sorted(tallies.items())]


def _count(tally: ArmTally, record: RequestRecord, met: bool) -> None:
    tally.count("judged")
    tally.count("on_time", int(met))
    if record.ttft_s is not None:
        tally.answered(record.ttft_s, record.request.prompt_tokens)
    if record.status == UNFINISHED:
        return
    tally.count("ended")
    if record.status in (FAILED, REJECTED):
        tally.count(record.status)
    elif record.status == FINISHED and record.hit_tokens is not None:
        tally.count("prompt_tokens", record.request.prompt_tokens)
        tally.count("cached_tokens", record.hit_tokens)
