"""One engine as all gateways and the prober see it together."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

import msgspec

from gateway.contracts.engine_report import EngineReport
from gateway.contracts.fleet_sample import EngineCounts, EngineSample


class Sighting(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of one engine; what nobody says is as if there were nothing."""

    incarnation: int = 1
    counts: EngineCounts | None = None
    outstanding_s: float = 0.0
    tickets: int = 0
    running: int = 0
    """Requests that the gateways granted and that are not complete."""
    lost: bool = False
    """All gateways that know it have lost it."""
    heard: bool = False
    """Any gateway knows it."""

    @property
    def in_flight(self) -> int | None:
        """Requests that run there or wait for it; None: nobody knows."""
        return self.running + self.tickets if self.heard else None


def together(samples: Sequence[EngineSample], report: EngineReport | None) -> Sighting:
    """Return what several gateways' samples of one engine say together; `report` tells processes apart."""
    if not samples:
        return Sighting()
    process_start = report.process_start if report is not None else None
    return Sighting(
        incarnation=int(process_start) if process_start else sum(each.incarnation for each in samples),
        counts=_counts([each.counts for each in samples if each.counts is not None]),
        outstanding_s=sum(each.outstanding_s for each in samples),
        tickets=sum(each.bound for each in samples),
        running=sum(each.running for each in samples),
        lost=all(each.state == "lost" for each in samples),
        heard=True,
    )


def _counts(told: Sequence[EngineCounts]) -> EngineCounts | None:
    if len(told) <= 1:
        return told[0] if told else None
    return EngineCounts(
        granted=sum(each.granted for each in told),
        prefilling=sum(each.prefilling for each in told),
        streaming=sum(each.streaming for each in told),
        first_tokens_total=sum(each.first_tokens_total for each in told),
        chunks_total=sum(each.chunks_total for each in told),
        longest_prefill_s=max(each.longest_prefill_s for each in told),
        # Each gateway counts the failures of its own; an engine that serves any of them is not failing.
        failures_in_row=min(each.failures_in_row for each in told),
        refused_share=_median([(each.refused_share, each.refused_samples) for each in told]),
        refused_samples=sum(each.refused_samples for each in told),
        slowness=_median([(each.slowness, each.slowness_samples) for each in told]),
        slowness_samples=sum(each.slowness_samples for each in told),
        tbt_s=_median([(each.tbt_s, each.tbt_samples) for each in told]),
        tbt_samples=sum(each.tbt_samples for each in told),
        event_gaps_total=max(each.event_gaps_total for each in told),
    )


def _median(told: Sequence[tuple[float | None, int]]) -> float | None:
    """Return the median of medians, each counted as often as it has samples, 32 times at most."""
    values = [value for value, samples in told if value is not None for _ in range(min(samples, 32))]
    return statistics.median(values) if values else None
