"""One engine as all gateways and the prober see it together."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from controlplane.platform.live_fleet.engines_together import counts_together
from gateway.contracts.engine_report import EngineReport
from gateway.contracts.fleet_sample import EngineCounts, EngineSample


class Sighting(msgspec.Struct, frozen=True, kw_only=True):
    """Figures of one engine; missing ones count as absent."""

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
        counts=counts_together([each.counts for each in samples if each.counts is not None]),
        outstanding_s=sum(each.outstanding_s for each in samples),
        tickets=sum(each.bound for each in samples),
        running=sum(each.running for each in samples),
        lost=all(each.state == "lost" for each in samples),
        heard=True,
    )
