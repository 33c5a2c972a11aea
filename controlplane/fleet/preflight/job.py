"""The job that checks engines before they serve: many concurrently, each in a separate leased run."""

from __future__ import annotations

import asyncio
import logging
from datetime import timedelta

from asgiref.sync import async_to_sync, sync_to_async
from celery import shared_task
from django.conf import settings

from controlplane.fleet.preflight.checks import STEP_S, EnginePreflight
from controlplane.fleet.preflight.lifecycle import JOB
from controlplane.fleet.preflight.outcome import conclude, preflight_subject
from controlplane.fleet.preflight.steps import failed_step, fresh_steps, replaced, to_progress
from controlplane.platform.jobs.cooperative_stop import stop_requested
from controlplane.platform.jobs.lease import Lease, finish, renew, take_waiting, waiting
from controlplane.platform.jobs.one_at_a_time import one_at_a_time
from controlplane.platform.models.job_run import JobState
from gateway.base.engine_api_keys import engine_key
from gateway.pools.engines.engine_session import engine_session

logger = logging.getLogger(__name__)

LEASE = timedelta(seconds=STEP_S + 10)
AT_ONCE = 16
POLL_S = 0.2
_IDLE_S = 4.0
"""Maximum idle time of a connection. Engines close connections that are idle for longer."""


@shared_task(name="controlplane.preflight", ignore_result=True)
@one_at_a_time
def preflight() -> None:
    """Check all engines that wait for a preflight, in one event loop."""
    if waiting(JOB).exists():
        async_to_sync(_serve)()


async def _serve() -> None:
    running: dict[asyncio.Task[None], Lease] = {}
    try:
        while not stop_requested.is_set():
            for lease in await sync_to_async(take_waiting)(JOB, LEASE, AT_ONCE - len(running)):
                running[asyncio.create_task(_run_checks(lease))] = lease
            if not running:
                return
            done, _ = await asyncio.wait(running, timeout=POLL_S)
            for task in done:
                await _account(task, running.pop(task))
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


async def _account(task: asyncio.Task[None], lease: Lease) -> None:
    """End the run of a check that raised an exception, because a retry would raise it again."""
    if error := task.exception():
        logger.error("a preflight failed", exc_info=error)
        outcome = {"result": "ended", "reason": f"the preflight itself failed ({type(error).__name__})"}
        await sync_to_async(finish)(lease, outcome=outcome, state=JobState.ABANDONED)


async def _run_checks(lease: Lease) -> None:
    """Run the checklist of one run. If the lease is lost, stop without a result."""
    subject = await sync_to_async(preflight_subject)(lease.run_id)
    if subject is None:
        outcome = {"result": "ended", "reason": "the engine was deleted"}
        await sync_to_async(finish)(lease, outcome=outcome, state=JobState.ABANDONED)
        return
    steps = fresh_steps()
    async with engine_session(keepalive_s=_IDLE_S, limit=2) as session:
        bearer = engine_key(subject.key_variable, settings.ENGINE_API_KEY)
        check = EnginePreflight(subject, session, bearer=bearer)
        async for step in check.run():
            steps = replaced(steps, step)
            held = await sync_to_async(renew)(lease, LEASE, progress=to_progress(steps))
            # Another process has taken the run, or it was cancelled.
            if held is None:
                return
            lease = held
    outcome = await sync_to_async(conclude)(lease.run_id, subject.revision, steps, check.source, check.block_tokens)
    state = JobState.FAILED if failed_step(steps) else JobState.DONE
    await sync_to_async(finish)(lease, outcome=outcome, state=state)
