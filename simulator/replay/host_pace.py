"""Sizes a demo's replay to its host: a rate from the computing power that is left, and less while the target is slow.

Programs on this host compete for it with the demo, so the power is measured, not read from a count of cores.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from functools import cache
from pathlib import Path

import msgspec

from routing.values.prepared_struct import prepared

MEASURED_S = 0.5
_LOOPS_PER_S = 65_000
"""Loops of `_PROGRAM` per second on one idle core of the host on which the costs below were measured."""
_PROGRAM = "from time import time\nn, end = 0, time() + {}\nwhile time() < end: sum(range(1000)); n += 1\nprint(n)"
_MAX_CORES = 4
_IDLE_CORES, _CORES_PER_RATE = 0.35, 0.045
"""Cores that the demo uses without requests, and cores for each request per second."""
_USED = 0.5
"""Share of the power for which the rate is sized. The rest is for bursts, pages, and other programs."""
MIN_RATE = 0.5
PACE_SUFFIX = ".pace.json"
LATE_S = 0.15
"""The target is slow if it answers an empty request after this time."""
SETTLED = 3
_PROBE_S, _SLOW_S, _CALM_S, _SETTLE_S = 1.0, 3.0, 30.0, 90.0
_STALE_S = 2 * _SETTLE_S
"""A running replay touches its file more often."""
_SLOWER, _FASTER, _LEAST = 0.7, 1.15, 0.1


class ReplayPace(msgspec.Struct, frozen=True):
    """Cores that the replay may use, and requests per second: those sized for this host, and those now."""

    cores: float
    full: float
    rate: float


def allowed_cores(quota_file: Path = Path("/sys/fs/cgroup/cpu.max")) -> float:
    """Return the cores that this process may use, by its affinity and the quota of its control group."""
    cores = float(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
    # Without a quota, there is no such file, or "max" in it.
    with contextlib.suppress(OSError, ValueError):
        quota_us, period_us = quota_file.read_text().split()
        cores = min(cores, float(quota_us) / float(period_us))
    return cores


@cache
def free_power() -> float:
    """Return the power that this host gives one process per core, measured once, in idle cores of a reference host."""
    argv = [sys.executable, "-S", "-c", _PROGRAM.format(MEASURED_S)]
    count = max(1, min(_MAX_CORES, round(allowed_cores())))
    children = [subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) for _ in range(count)]  # noqa: S603 - constant
    loops = sum(int(child.communicate()[0] or 0) for child in children)
    return loops / MEASURED_S / _LOOPS_PER_S


def sized_rate(usual: float, power: float) -> float:
    """Return the requests per second, at most `usual`, that a host with this power serves on time."""
    return min(usual, max(MIN_RATE, round((power * _USED - _IDLE_CORES) / _CORES_PER_RATE * 2) / 2))


class HostPace:
    """Slows a replay down while its target responds slowly. Mutable: `share` of the full rate, and the file with it."""

    def __init__(self, path: Path, full: float, now: Callable[[], float] = time.monotonic) -> None:
        self.share = 1.0
        self._path, self._full, self._now = path, full, now
        self._noted = now()
        self._show()

    async def settle(self, delay_s: Callable[[], Awaitable[float]]) -> None:
        """Wait until the target responds promptly, so that requests do not compete with its start."""
        prompt, end = 0, time.monotonic() + _SETTLE_S
        while prompt < SETTLED and time.monotonic() < end:
            prompt = prompt + 1 if await delay_s() < LATE_S else 0
            await asyncio.sleep(_PROBE_S)

    async def run(self, delay_s: Callable[[], Awaitable[float]]) -> None:
        """Probe the target until cancelled. `delay_s` returns the seconds that an empty request takes."""
        while True:
            self.note(await delay_s())
            self._path.touch()
            await asyncio.sleep(_PROBE_S)

    def note(self, delay_s: float) -> None:
        """Slow down after a slow answer, once in three seconds, and speed up after each half minute without one."""
        now, share = self._now(), self.share
        slow = delay_s >= LATE_S
        if now - self._noted < (_SLOW_S if slow else _CALM_S):
            return
        self._noted = now
        self.share = max(_LEAST, share * _SLOWER) if slow else min(1.0, share * _FASTER)
        if self.share != share:
            self._show()

    def _show(self) -> None:
        pace = ReplayPace(allowed_cores(), self._full, round(self._full * self.share, 2))
        written = self._path.with_suffix(".new")
        written.write_bytes(msgspec.json.encode(pace))
        written.replace(self._path)


def read_paces(directory: Path) -> list[ReplayPace]:
    """Return the paces of the replays that run and write to this directory. Unreadable files are left out."""
    paces = []
    for path in sorted(directory.glob(f"*{PACE_SUFFIX}")):
        with contextlib.suppress(OSError, msgspec.DecodeError):
            if time.time() - path.stat().st_mtime < _STALE_S:
                paces.append(msgspec.json.decode(path.read_bytes(), type=prepared(ReplayPace)))
    return paces


def pace_words(paces: Sequence[ReplayPace]) -> str:
    """Return the pace of all replays as a sentence: "2 cores: replaying 4 requests/s". No replay: ""."""
    if not paces:
        return ""
    cores, full, rate = paces[0].cores, sum(pace.full for pace in paces), sum(pace.rate for pace in paces)
    now, usual = f"{rate:.2g}", f"{full:.2g}"
    slowed = f", slowed from {usual} because the gateway responds late" if now != usual and rate < full else ""
    return f"{cores:g} core{'' if cores == 1 else 's'}: replaying {now} requests/s{slowed}"
