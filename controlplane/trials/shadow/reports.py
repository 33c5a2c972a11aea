"""Stores gateways' shadow counts and sums them for display."""

from __future__ import annotations

import msgspec
from django.db import transaction

from controlplane.platform.stream_intake import NewestIntake
from controlplane.trials.models.shadow import Shadow, ShadowPart
from controlplane.trials.shadow.lifecycle import fail_shadow
from gateway.bus.bus import Bus
from gateway.contracts.shadow_tally import TOPIC, ShadowReport, ShadowTally, added_up, decode_shadow_report
from routing.values.prepared_struct import prepared

MAX_PARTS = 256
"""Maximum number of gateways and gateway restarts counted separately for one shadow."""
_MAX_WAITING = 10_000


class ShadowIntake(NewestIntake[tuple[str, str], ShadowReport]):
    """The newest unsaved report of each part of a shadow."""

    def __init__(self, bus: Bus) -> None:
        super().__init__(bus, TOPIC, _report_in, _MAX_WAITING)

    def store(self) -> int:
        """Store the received reports and return how many parts were written.

        If the database fails, keep all reports.
        """
        return self.settle(lambda newest: (newest.keys(), store_reports(list(newest.values()))))


def _report_in(message: bytes) -> dict[tuple[str, str], ShadowReport]:
    report = decode_shadow_report(message)
    return {(report.run_id, report.part): report}


def store_reports(reports: list[ShadowReport]) -> int:
    """Write the reports of known shadows, unless a newer report is stored. Return how many were written.

    If a report states why its shadow could not continue, end the shadow on all gateways.
    """
    shadows = {
        shadow.key: shadow
        for shadow in Shadow.objects.filter(key__in={item.run_id for item in reports}).select_related("pool")
    }
    written = 0
    for report in reports:
        shadow = shadows.get(report.run_id)
        if shadow is None or shadow.pool.slug != report.pool_id:
            continue
        written += _write(shadow, report)
        if report.failed:
            fail_shadow(shadow, report.failed)
    return written


def total_of(shadow: Shadow) -> ShadowTally:
    """Return the sum of all gateways' counts."""
    return added_up(msgspec.convert(part.tally, prepared(ShadowTally)) for part in shadow.parts.all())


def _write(shadow: Shadow, report: ShadowReport) -> bool:
    tally = msgspec.to_builtins(report.tally)
    with transaction.atomic():
        parts = ShadowPart.objects.filter(shadow=shadow, part=report.part)
        # Two workers may store the reports of one gateway in either order.
        if parts.filter(at__lt=report.at).update(at=report.at, tally=tally):
            return True
        if parts.exists() or ShadowPart.objects.filter(shadow=shadow).count() >= MAX_PARTS:
            return False
        _, made = ShadowPart.objects.get_or_create(
            shadow=shadow, part=report.part, defaults={"at": report.at, "tally": tally}
        )
    return made
