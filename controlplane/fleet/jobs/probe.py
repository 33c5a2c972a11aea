"""The leased, sharded job that probes all engines. Each shard has one holder in the installation at a time."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta

import uvloop
import xxhash
from celery import shared_task
from django.conf import settings
from django.db import DatabaseError, transaction
from django.utils import timezone

from controlplane.platform.bus import get_bus
from controlplane.platform.jobs.cooperative_stop import stop_requested
from controlplane.platform.jobs.lease import Lease, acquire, finish, held_at, release, renew, this_owner
from controlplane.platform.jobs.one_at_a_time import one_at_a_time
from controlplane.platform.models.job_run import JobRun, JobState
from controlplane.platform.snapshot_change import TOPIC
from gateway.bus.bus import Bus
from gateway.contracts.engine_report import decode_report, load_topic
from gateway.contracts.snapshot import EngineEntry, decode_snapshot
from gateway.pools.engines.prober import probe_engines
from routing.values.counted import count

SHARD_ENGINES = 100
"""Average number of engines per shard. With hashing, a shard rarely exceeds 125."""
MAX_SHARDS = 4096

_MULTIPLIER = 2862933555777941757
_WORD = (1 << 64) - 1


def shard_count(engines: int) -> int:
    """Return the number of shards for this many engines, at least one."""
    return min(MAX_SHARDS, max(1, -(-engines // SHARD_ENGINES)))


def shard_of(engine_id: str, shards: int) -> int:
    """Return the engine's shard, 0 … shards − 1. Adding a shard moves engines only to the new shard.

    Jump consistent hashing (Lamping and Veach 2014, figure 1).
    """
    key = xxhash.xxh3_64_intdigest(engine_id.encode())
    chosen, jump = -1, 0
    while jump < shards:
        chosen = jump
        key = (key * _MULTIPLIER + 1) & _WORD
        jump = int((chosen + 1) * ((1 << 31) / ((key >> 33) + 1)))
    return chosen


logger = logging.getLogger(__name__)

JOB = "probe"
# With an attempt each half second, a dead holder's work goes on within LEASE + RENEW_S, below 2 s.
LEASE = timedelta(seconds=1.3)
RENEW_S = 0.5
PREFERRED_SHARDS = 5
"""A process takes up to this many shards, that is 500 engines, as soon as they are free."""
SPARE_S = 3.0
"""A process takes further shards after they have been free for this time."""
_POLL_S = 0.05
_END_S = 2.0
"""A probe that does not end within this time is abandoned."""

Targets = Callable[[], Sequence[EngineEntry]]


@shared_task(name="controlplane.probe", ignore_result=True)
@one_at_a_time
def probe() -> None:
    """Probe the free shards until their leases are lost or the process stops. Return at once if no shard is free."""
    holder = ShardHolder(get_bus(), this_owner())
    holder.take(time.monotonic())
    if holder.held:
        holder.hold(stop_requested)


@dataclass(slots=True)
class _Held:
    """One shard that this process holds. Mutable: written by the renewing thread, read by the probing thread."""

    shard: int
    lease: Lease
    until_s: float
    """End of the lease on this process's monotonic clock. Probing stops then, even if a renewal hangs."""
    done: threading.Event = field(default_factory=threading.Event)
    """Set when no probe of this shard is running."""


class ShardHolder:
    """Holds shards: probes them in a separate thread, and renews their leases in the caller's thread.

    Mutable state: `held`, by shard.
    """

    def __init__(self, bus: Bus, owner: str) -> None:
        self.held: dict[int, _Held] = {}
        self._bus = bus
        self._owner = owner
        self._targets = snapshot_targets(bus)
        self._free_since: dict[int, float] = {}
        # Two threads read it: one replaceable tuple keeps engines and their shards together.
        self._split: tuple[Sequence[EngineEntry] | None, dict[int, list[EngineEntry]]] = (None, {})

    def take(self, now_s: float) -> None:
        """Take free shards: the preferred number immediately, and others after they have been free for SPARE_S.

        `now_s` is monotonic seconds.
        """
        shards = shard_count(len(self._targets()))
        for shard in self._free(shards):
            waited_s = now_s - self._free_since.setdefault(shard, now_s)
            if len(self.held) >= PREFERRED_SHARDS and waited_s < SPARE_S:
                continue
            # Read before the database writes the end, so that probing never outlasts the lease.
            asked_s = time.monotonic()
            lease = acquire(JOB, self._owner, LEASE, shard=shard)
            self._free_since.pop(shard, None)
            if lease is not None:
                self.held[shard] = _Held(shard, lease, asked_s + LEASE.total_seconds())

    def hold(self, stop: threading.Event) -> None:
        """Probe until no shard is held, `stop` is set, or the database is unreachable."""
        loop = uvloop.new_event_loop()
        prober = threading.Thread(target=_run_loop, args=(loop,), name="probe", daemon=True)
        prober.start()
        for held in self.held.values():
            self._start(held, loop)
        try:
            while self.held and not stop.wait(RENEW_S):
                self._renew()
                before = set(self.held)
                self.take(time.monotonic())
                for shard in self.held.keys() - before:
                    self._start(self.held[shard], loop)
        except DatabaseError as error:
            # The database is away for a while; gateways probe by themselves meanwhile.
            logger.warning("the probe leases cannot be renewed", extra={"error": type(error).__name__})
            self._drop_all()
        else:
            for held in self._drop_all():
                release(held.lease)
        finally:
            loop.call_soon_threadsafe(loop.stop)
            prober.join(_END_S)

    def _renew(self) -> None:
        """Renew all leases in one transaction, and drop shards that are lost, surplus, or no longer probed."""
        shards = shard_count(len(self._targets()))
        asked_s = time.monotonic()
        with transaction.atomic():
            renewed = {
                held.shard: renew(held.lease, LEASE, progress=self._progress(held.shard, shards))
                for held in self.held.values()
            }
        for shard, lease in renewed.items():
            held = self.held[shard]
            if lease is not None and shard < shards and not held.done.is_set():
                held.lease, held.until_s = lease, asked_s + LEASE.total_seconds()
            else:
                self._let_go(held, lease, shards)

    def _let_go(self, held: _Held, lease: Lease | None, shards: int) -> None:
        """Drop one shard because its lease is lost (None), its probing has ended, or it is surplus."""
        broke_off = held.done.is_set()
        self._end(held)
        del self.held[held.shard]
        if lease is None:
            logger.warning("a probe lease went to another holder", extra={"shard": held.shard})
        elif broke_off:
            # Its term ran out while the database kept us waiting, or it failed: the next attempt takes it again.
            release(lease)
        else:
            finish(
                lease,
                outcome={"reason": f"{count(shards, 'shard is', 'shards are')} enough for the engines"},
            )

    def _free(self, shards: int) -> list[int]:
        """Return the free shards in ascending order."""
        taken = set(
            JobRun.objects.filter(held_at(timezone.now()), job=JOB, state=JobState.ACTIVE).values_list(
                "shard", flat=True
            )
        )
        free = [shard for shard in range(shards) if shard not in taken and shard not in self.held]
        for shard in self._free_since.keys() - set(free):
            del self._free_since[shard]
        return free

    def _drop_all(self) -> list[_Held]:
        dropped = list(self.held.values())
        for held in dropped:
            # All at once, so that their last reads end together and not one after the other.
            held.until_s = 0.0
        for held in dropped:
            self._end(held)
        self.held.clear()
        return dropped

    def _end(self, held: _Held) -> None:
        """Stop the shard's probing and wait for its last probe."""
        held.until_s = 0.0
        if not held.done.wait(_END_S):
            logger.warning("a probe does not end; its lease runs out by itself", extra={"shard": held.shard})

    # -- in the thread that probes

    def _start(self, held: _Held, loop: asyncio.AbstractEventLoop) -> None:
        asyncio.run_coroutine_threadsafe(self._probe(held), loop)

    async def _probe(self, held: _Held) -> None:
        stop = asyncio.Event()
        probing = asyncio.create_task(
            probe_engines(
                lambda: self._engines(held.shard),
                self._bus,
                stop,
                timeout_s=float(settings.PROBE_TIMEOUT_S),
                bearer=settings.ENGINE_API_KEY,
                shard=held.shard,
                fence=held.lease.fencing_token,
            )
        )
        try:
            while time.monotonic() < held.until_s and not probing.done():  # noqa: ASYNC110 - the end moves in another thread
                await asyncio.sleep(_POLL_S)
            stop.set()
            await probing
        finally:
            held.done.set()

    def _engines(self, shard: int) -> list[EngineEntry]:
        targets = self._targets()
        if self._split[0] is not targets:
            self._split = (targets, _split(targets))
        return self._split[1].get(shard, [])

    def _progress(self, shard: int, shards: int) -> dict[str, int]:
        engines = self._engines(shard)
        reports = [self._bus.latest(load_topic(engine.engine_id)) for engine in engines]
        reachable = sum(1 for report in reports if report is not None and decode_report(report).reachable)
        return {"engines": len(engines), "reachable": reachable, "shards": shards}


def _split(targets: Sequence[EngineEntry]) -> dict[int, list[EngineEntry]]:
    """Return the engines by shard."""
    shards = shard_count(len(targets))
    entries: dict[int, list[EngineEntry]] = {}
    for entry in targets:
        entries.setdefault(shard_of(entry.engine_id, shards), []).append(entry)
    return entries


def _run_loop(loop: asyncio.AbstractEventLoop) -> None:
    try:
        loop.run_forever()
    finally:
        loop.close()


def snapshot_targets(bus: Bus) -> Targets:
    """Return a function that returns the engines of the newest snapshot, except engines in maintenance.

    It decodes each snapshot only once, so frequent calls are cheap.
    """
    # Two threads read it: one replaceable tuple keeps the parts of one snapshot together.
    seen: tuple[bytes | None, tuple[EngineEntry, ...]] = (None, ())

    def targets() -> Sequence[EngineEntry]:
        nonlocal seen
        data = bus.latest(TOPIC)
        if data is not None and data is not seen[0]:
            engines = decode_snapshot(data).engines
            seen = (data, tuple(entry for entry in engines if entry.desired_state != "maintenance"))
        return seen[1]

    return targets
