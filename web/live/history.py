"""The bounded past of the fleet that a viewer sees when the page opens."""

from __future__ import annotations

from controlplane.fleet_past.collector import FINE_S
from controlplane.fleet_past.column import Column
from controlplane.fleet_past.marker import MarkerLog
from controlplane.fleet_past.window import FleetWindow
from gateway.fleet_sample import FleetSample
from web.live.hour_strip import HourStrip

COLUMN_S = 2.0
COLUMNS = 150
"""Five minutes of columns."""


class FleetHistory:
    """Five minutes of two-second columns and of stored length, one hour of coarse ones, and what changed in between.

    Not thread-safe: its owner holds the lock. A sample older than the newest column is dropped.
    """

    def __init__(self, columns: int = COLUMNS) -> None:
        self._window = FleetWindow(columns, COLUMN_S)
        # Pictures of the past end with these. Folding each sample costs less than making them anew for each picture.
        self._fine = FleetWindow(round(columns * COLUMN_S / FINE_S) + 1, FINE_S)
        self.hour = HourStrip()
        self.markers = MarkerLog(span_s=columns * COLUMN_S)

    def add(self, sample: FleetSample) -> bool:
        """Fold the sample into the newest column; return False when it came too late to count."""
        before = self._window.latest
        if not self._window.add(sample):
            return False
        self._fine.add(sample)
        self.hour.add(sample)
        self.markers.follow(before, sample)
        return True

    @property
    def latest(self) -> FleetSample | None:
        """The newest sample; None before the first."""
        return self._window.latest

    @property
    def newest(self) -> Column | None:
        """The column that is still filling; None before the first sample."""
        return self._window.newest

    @property
    def capacity(self) -> int:
        """How many columns the picture holds."""
        return self._window.capacity

    def columns(self) -> list[Column]:
        """Return the columns kept, oldest first, without the gaps between them."""
        return self._window.columns()

    def fine_columns(self) -> list[Column]:
        """Return columns of FINE_S seconds over the same minutes, oldest first, without the gaps between them."""
        return self._fine.columns()

    def window(self) -> list[Column | None]:
        """Return every column of the picture, oldest first; None where nothing was heard."""
        return self._window.window()
