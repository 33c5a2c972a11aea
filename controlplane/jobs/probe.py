"""The leased job that watches all engines: one holder in the whole installation at a time."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Sequence
from datetime import timedelta

from celery import shared_task
from django.conf import settings
from django.db import DatabaseError

from controlplane.bus import get_bus
from controlplane.jobs.cooperative_stop import stop_requested
from controlplane.jobs.lease import Lease, acquire, release, renew, this_owner
from controlplane.services.publication import TOPIC
from gateway.bus import Bus
from gateway.engine_report import decode_report, load_topic
from gateway.prober import probe_engines
from gateway.snapshot import EngineEntry, decode_snapshot

logger = logging.getLogger(__name__)

# With a wake-up each half second, a dead holder's work goes on within LEASE + 0.5 s, below 2 s.
LEASE = timedelta(seconds=1.3)
RENEW_S = 0.6
_LOOK_S = 0.05


@shared_task(name="controlplane.probe", ignore_result=True)
def probe() -> None:
    """Probe until the lease is lost or the process stops; return at once while somebody else does."""
    lease_asked_s = time.monotonic()
    lease = acquire("probe", this_owner(), LEASE)
    if lease is not None:
        hold(lease, get_bus(), until_s=lease_asked_s + LEASE.total_seconds(), stop=stop_requested)


def hold(lease: Lease, bus: Bus, *, until_s: float, stop: threading.Event) -> None:
    """Probe in a thread of its own and renew the lease in this one.

    `until_s` is the lease's end on this process's monotonic clock. Probing ends by itself at that
    time, also while a renewal hangs in the database.
    """
    term = _Term(until_s)
    targets = snapshot_targets(bus)
    prober = threading.Thread(target=lambda: asyncio.run(_probe_for(term, targets, bus)), name="probe", daemon=True)
    prober.start()
    try:
        while prober.is_alive() and not stop.wait(RENEW_S):
            asked_s = time.monotonic()
            if renew(lease, LEASE, progress=_progress(targets(), bus)) is None:
                logger.warning("the probe lease went to another holder")
                break
            term.until_s = asked_s + LEASE.total_seconds()
    except DatabaseError as error:
        # The database is gone for a while; gateways probe by themselves meanwhile.
        logger.warning("the probe lease cannot be renewed", extra={"error": type(error).__name__})
        term.until_s = 0.0
        prober.join()
        return
    term.until_s = 0.0
    prober.join()
    release(lease)


class _Term:
    """Until when probing may go on. Mutable state: `until_s`, written by one thread and read by the other."""

    def __init__(self, until_s: float) -> None:
        self.until_s = until_s


async def _probe_for(term: _Term, targets: Callable[[], Sequence[EngineEntry]], bus: Bus) -> None:
    stop = asyncio.Event()
    probing = asyncio.create_task(probe_engines(targets, bus, stop, bearer=settings.ENGINE_API_KEY))
    while time.monotonic() < term.until_s and not probing.done():  # noqa: ASYNC110 - the term moves in another thread
        await asyncio.sleep(_LOOK_S)
    stop.set()
    await probing


def snapshot_targets(bus: Bus) -> Callable[[], Sequence[EngineEntry]]:
    """Return a call that gives the engines of the newest snapshot, those in maintenance excepted.

    It decodes a snapshot once, so that it may be called often.
    """
    # Two threads ask: one replaceable tuple keeps what they see of one snapshot together.
    seen: tuple[bytes | None, tuple[EngineEntry, ...]] = (None, ())

    def targets() -> Sequence[EngineEntry]:
        nonlocal seen
        data = bus.latest(TOPIC)
        if data is not None and data is not seen[0]:
            engines = decode_snapshot(data).engines
            seen = (data, tuple(entry for entry in engines if entry.desired_state != "maintenance"))
        return seen[1]

    return targets


def _progress(engines: Sequence[EngineEntry], bus: Bus) -> dict[str, int]:
    reports = [bus.latest(load_topic(engine.engine_id)) for engine in engines]
    reachable = sum(1 for report in reports if report is not None and decode_report(report).reachable)
    return {"engines": len(engines), "reachable": reachable}
