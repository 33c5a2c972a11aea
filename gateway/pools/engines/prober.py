"""Probes all engines from one asyncio loop and publishes the results on the bus.

Light reads (ten per second) show whether an engine responds and how many requests it holds; full reads add its health
and metrics. Each engine has its own task, so that a slow engine delays only itself. The number of concurrent reads is
bounded.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Callable, Sequence
from functools import partial

import aiohttp

from gateway.base.engine_api_keys import engine_key
from gateway.base.event_log import log_event
from gateway.base.loop_lag import LoopLag
from gateway.base.settings import PROBE_TIMEOUT_S
from gateway.bus.bus import Bus
from gateway.contracts.engine_report import EngineReport, encode_report, load_topic
from gateway.contracts.snapshot import EngineEntry
from gateway.pools.engines.engine_metrics import EngineMetrics
from gateway.pools.engines.engine_session import engine_session
from gateway.pools.engines.health_probe import EngineAnswerError, EngineUnreachableError
from gateway.pools.engines.vllm_adapter import VllmAdapter

MAX_CONCURRENT_READS = 64
EngineKey = tuple[str, str, str, int | None]
"""Engine id, URL, key variable and rank. The same id at another URL is another process."""
RECONCILE_S = 0.5
"""Interval of reading the list of engines."""
SILENT_READS = 10
"""After this many unanswered reads in a row, an engine is read only every `SILENT_INTERVAL_S`."""
SILENT_INTERVAL_S = 0.5
_IDLE_S = 30.0
"""A connection to an engine that was idle for this many seconds is closed."""
_jitter = random.Random()
WAITING_EVERY = 4
"""One in this many light reads includes the engine's queue and memory use, which costs the engine more."""


async def probe_engines(
    get_targets: Callable[[], Sequence[EngineEntry]],
    bus: Bus,
    stop: asyncio.Event,
    *,
    light_interval_s: float = 0.1,
    full_interval_s: float = 2.0,
    timeout_s: float = PROBE_TIMEOUT_S,
    bearer: str = "",
    shard: int = 0,
    fence: int = 0,
) -> None:
    """Probe the engines of `get_targets()` until `stop` is set; publish EngineReports on `load/<engine_id>`.

    `get_targets` is called twice a second on the loop and must not block. Reports carry `shard` and `fence`. `bearer`
    is the fleet's key, for engines whose pools have no key.
    """
    async with engine_session(keepalive_s=_IDLE_S) as session:
        lag = LoopLag()
        prober = _Prober(session, bus, light_interval_s, full_interval_s, timeout_s, bearer, (shard, fence), lag)
        ticking = asyncio.create_task(lag.run(), name="lag of the prober")
        try:
            while not stop.is_set():
                prober.reconcile(get_targets())
                await _sleep_until(stop, RECONCILE_S)
        finally:
            ticking.cancel()
            await prober.close()


class _Prober:
    """The running tasks, one per engine. Mutable: `_tasks`."""

    def __init__(
        self,
        session: aiohttp.ClientSession,
        bus: Bus,
        light_interval_s: float,
        full_interval_s: float,
        timeout_s: float,
        bearer: str,
        lease: tuple[int, int],
        lag: LoopLag,
    ) -> None:
        self._session = session
        self._bus = bus
        self._light_interval_s = light_interval_s
        self._full_interval_s = full_interval_s
        self._timeout_s = timeout_s
        self._bearer = bearer
        self._lease = lease
        self._lag = lag
        self._slots = asyncio.Semaphore(MAX_CONCURRENT_READS)
        self._tasks: dict[EngineKey, asyncio.Task[None]] = {}

    def reconcile(self, targets: Sequence[EngineEntry]) -> None:
        """Start a task for each new engine or URL, end those of removed engines, and restart failed ones."""
        wanted = {(entry.engine_id, entry.url, entry.key_variable, entry.rank) for entry in targets}
        for key, task in list(self._tasks.items()):
            if key not in wanted:
                task.cancel()
                del self._tasks[key]
            elif task.done():
                log_event(
                    "probe_task_failed", level=logging.ERROR, engine=key[0], error=type(task.exception()).__name__
                )
                del self._tasks[key]
        for key in wanted - self._tasks.keys():
            self._tasks[key] = asyncio.create_task(self._watch(*key), name=f"probe {key[0]}")

    async def close(self) -> None:
        """End all tasks and wait for them."""
        tasks = list(self._tasks.values())
        self._tasks.clear()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _watch(self, engine_id: str, url: str, key_variable: str, rank: int | None) -> None:
        bearer = engine_key(key_variable, self._bearer)
        adapter = VllmAdapter(self._session, url, bearer=bearer, timeout_s=self._timeout_s, plain=True, rank=rank)
        # Only the metrics show what one rank holds, and they cost more than /load.
        light_s = self._light_interval_s * (1 if rank is None else WAITING_EVERY)
        newest = partial(engine_key, key_variable, self._bearer)
        try:
            await self._read_on(_Watched(engine_id, adapter, self._lease, self._lag), light_s, newest)
        finally:
            adapter.close()

    async def _read_on(self, watched: _Watched, light_s: float, newest_key: Callable[[], str]) -> None:
        topic = load_topic(watched.engine_id)
        # Tasks start together; without this, all engines would be read at the same moments.
        await asyncio.sleep(_jitter.random() * light_s)
        next_full_at = 0.0
        while True:
            full = time.monotonic() >= next_full_at
            async with self._slots:
                if full:
                    await watched.renew_key(newest_key())
                report = await (watched.full() if full else watched.light())
            if report is not None:
                self._bus.publish(topic, encode_report(report))
            if full:
                pause_s = (
                    self._full_interval_s
                    if report is not None and report.healthy
                    else min(self._full_interval_s, SILENT_INTERVAL_S)
                )
                next_full_at = time.monotonic() + pause_s * _jitter.uniform(0.9, 1.1)
            interval_s = light_s if watched.silent < SILENT_READS else SILENT_INTERVAL_S
            await asyncio.sleep(interval_s * _jitter.uniform(0.9, 1.1))


class _Watched:
    """State of one engine between reads: the last metrics and the verdict of the last full read.

    Mutable: `silent`, `_lights` (light reads so far), `_metrics`, `_verdict`.
    """

    def __init__(self, engine_id: str, adapter: VllmAdapter, lease: tuple[int, int], lag: LoopLag) -> None:
        self.silent = 0
        self.engine_id = engine_id
        self._lights = 0
        self._shard, self._fence = lease
        self._lag = lag
        self._adapter = adapter
        self._metrics: EngineMetrics | None = None
        self._verdict = (True, True, "")
        """(healthy, readable, reason) of the last full read."""

    async def renew_key(self, newest: str) -> None:
        """Send the newest key from now on if the engine accepts it."""
        await self._adapter.renew_key(newest)

    async def light(self) -> EngineReport | None:
        """Read only the load, and keep health and metrics of the last full read. None: nothing was learned."""
        self._lights += 1
        try:
            load = await self._adapter.load(with_waiting=self._lights % WAITING_EVERY == 0)
        except EngineUnreachableError as error:
            if error.timed_out:
                # A busy API server may answer its other paths.
                return await self.full()
            return self._unreachable(str(error))
        except EngineAnswerError as error:
            self.silent = 0
            return self._report((False, error.status is not None, str(error)))
        self.silent = 0
        return self._report(self._verdict, load.running, load.waiting, load.kv_usage)

    async def full(self) -> EngineReport | None:
        """Read health and all metrics. None: nothing was learned."""
        begun_s = time.monotonic()
        try:
            late = await self._adapter.probe()
        except EngineUnreachableError as error:
            return None if self._was_away(error, begun_s) else self._unreachable(str(error))
        except EngineAnswerError as error:
            self.silent = 0
            self._verdict = (False, True, str(error))
            return self._report(self._verdict)
        self.silent = 0
        try:
            self._metrics = await self._adapter.full_metrics()
            self._verdict = (True, True, late)
        except (EngineAnswerError, EngineUnreachableError) as error:
            if self._was_away(error, begun_s):
                return None
            self._metrics = None
            self._verdict = (False, False, str(error))
            return self._report(self._verdict)
        metrics = self._metrics
        return self._report(self._verdict, metrics.running, metrics.waiting, metrics.kv_usage, full=True)

    def _was_away(self, error: Exception, begun_s: float) -> bool:
        """Return whether this process was suspended, so that the timeout proves nothing."""
        timed_out = isinstance(error, EngineUnreachableError) and error.timed_out
        return timed_out and not self._lag.vouches(begun_s, time.monotonic())

    def _unreachable(self, reason: str) -> EngineReport:
        self.silent += 1
        self._metrics = None
        return EngineReport(
            engine_id=self.engine_id,
            at=time.time(),
            reachable=False,
            healthy=False,
            reason=reason,
            shard=self._shard,
            fence=self._fence,
        )

    def _report(
        self,
        verdict: tuple[bool, bool, str],
        running: int | None = None,
        waiting: int | None = None,
        kv_usage: float | None = None,
        *,
        full: bool = False,
    ) -> EngineReport:
        healthy, readable, reason = verdict
        metrics = self._metrics
        return EngineReport(
            engine_id=self.engine_id,
            at=time.time(),
            reachable=True,
            healthy=healthy,
            readable=readable,
            reason=reason,
            running=running,
            waiting=waiting,
            kv_usage=kv_usage if kv_usage is not None or not metrics else metrics.kv_usage,
            kv_tokens=metrics.kv_tokens if metrics else None,
            prefix_queries_total=metrics.prefix_queries_total if metrics else None,
            prefix_hits_total=metrics.prefix_hits_total if metrics else None,
            process_start=metrics.process_start if metrics else None,
            block_size=metrics.block_size if metrics else None,
            full=full,
            prompt_tokens_total=metrics.prompt_tokens_total if metrics else None,
            generated_tokens_total=metrics.generated_tokens_total if metrics else None,
            asleep=metrics.asleep if metrics else None,
            adapters=metrics.adapters if metrics and full else None,
            max_adapters=metrics.max_adapters if metrics else None,
            shard=self._shard,
            fence=self._fence,
        )


async def _sleep_until(stop: asyncio.Event, seconds: float) -> None:
    try:
        async with asyncio.timeout(seconds):
            await stop.wait()
    except TimeoutError:
        return
