"""Reports the choices of the gateway's shadow policies to the control plane."""

from __future__ import annotations

import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

from gateway.bus.bus import Bus
from gateway.contracts.shadow_tally import TOPIC, encode_shadow_report

if TYPE_CHECKING:
    from gateway.pools.pool.live_pool import LivePool


def report_shadows(bus: Bus, pools: Iterable[LivePool]) -> None:
    """Report the shadows that have chosen or ended since the last report. Tallies are cumulative, so that a loss costs
    nothing.
    """
    unix = time.time()
    for pool in pools:
        for report in pool.shadow.take_reports(unix):
            bus.append(TOPIC, encode_shadow_report(report))
