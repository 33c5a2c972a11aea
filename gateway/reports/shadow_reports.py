"""Reports the choices of the gateway's shadow policies to the control plane."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from gateway.bus.bus import Bus
from gateway.contracts.shadow_report import TOPIC, encode_shadow_report

if TYPE_CHECKING:
    from gateway.pool.live_pool import LivePool


class ShadowReports:
    """Reports every interval what changed: whole tallies, so that a report that is lost costs nothing."""

    def __init__(self, bus: Bus, pools: Callable[[], Iterable[LivePool]], interval_s: float) -> None:
        self._bus = bus
        self._pools = pools
        self._interval_s = interval_s

    async def run(self) -> None:
        """Tell every interval, until cancelled."""
        while True:
            await asyncio.sleep(self._interval_s)
            self.tell()

    def tell(self) -> None:
        """Report the shadows that have chosen or ended since the last time."""
        unix = time.time()
        for pool in self._pools():
            for report in pool.shadow.take_reports(unix):
                self._bus.append(TOPIC, encode_shadow_report(report))
