"""Receives gateways' counts per arm, and stores them in time slices until the jobs compare them."""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import cache

from controlplane.platform.bus import get_bus
from gateway.bus.bus import Bus
from gateway.contracts.wire import UnreadableMessageError
from gateway.reports.arm_results import TOPIC, decode_arm_report
from planning.trials.arm_window import ArmTally, ArmWindow, together
from planning.trials.comparison import ArmSlice

SLICE_S = 2.0
KEPT_S = 900.0
"""Maximum age of slices. A step is judged by at most its last quarter of an hour."""
MAX_KEYS = 10_000

logger = logging.getLogger(__name__)

Key = tuple[str, str, int]
"""Pool, arm, and policy version."""


class ArmIntake:
    """Slices of each key, oldest first. Mutable, under `_lock`. Times are unix seconds on this process's clock."""

    def __init__(self, bus: Bus, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._slices: dict[Key, deque[tuple[float, ArmTally]]] = {}
        self._unsubscribe = bus.subscribe(TOPIC, self._receive)

    def stop(self) -> None:
        """Unsubscribe."""
        self._unsubscribe()

    def slices(self, base: Sequence[Key], tried: Key, since_s: float) -> list[tuple[float, ArmSlice]]:
        """Return the slices of an arm and its baseline (in one or more pools) since `since_s`, oldest first."""
        with self._lock:
            ours, others = self._of([tried], since_s), self._of(base, since_s)
        nothing = ArmWindow()
        return [
            (at, ArmSlice(others.get(at, nothing), ours.get(at, nothing))) for at in sorted(ours.keys() | others.keys())
        ]

    def _of(self, keys: Sequence[Key], since_s: float) -> dict[float, ArmWindow]:
        windows_at: dict[float, list[ArmWindow]] = {}
        for key in keys:
            for at, tally in self._slices.get(key, ()):
                if at >= since_s:
                    windows_at.setdefault(at, []).append(tally.window())
        return {at: windows[0] if len(windows) == 1 else together(windows) for at, windows in windows_at.items()}

    def _receive(self, _topic: str, value: bytes) -> None:
        try:
            report = decode_arm_report(value)
        except UnreadableMessageError as error:
            logger.warning("results of arms cannot be read", extra={"reason": str(error)})
            return
        now_s = self._clock()
        at = now_s // SLICE_S * SLICE_S
        with self._lock:
            for row in report.rows:
                key = row.pool_id, row.arm, row.policy_version
                if key not in self._slices and len(self._slices) >= MAX_KEYS:
                    self._forget_old(now_s)
                    if len(self._slices) >= MAX_KEYS:
                        return
                slices = self._slices.setdefault(key, deque(maxlen=int(KEPT_S / SLICE_S)))
                if slices and slices[-1][0] > at:
                    # The clock was set back: slices of the future would count as the newest until then.
                    slices.clear()
                if not slices or slices[-1][0] != at:
                    slices.append((at, ArmTally()))
                slices[-1][1].add(row.window)

    def _forget_old(self, now_s: float) -> None:
        self._slices = {key: slices for key, slices in self._slices.items() if slices[-1][0] >= now_s - KEPT_S}


@cache
def arm_intake() -> ArmIntake:
    """Return the only ArmIntake of this process."""
    return ArmIntake(get_bus())
