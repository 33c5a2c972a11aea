"""Decides whether a due job has anything to do, so that an idle installation wakes almost none.

Two statements count what all jobs work on. They replace a message, a thread's wake-up, and queries of each job.
The job table with its leases stays authoritative: a job that is woken in vain does nothing, and each job is woken
every IDLE_S in any case. Without an answer of the database, every job is needed.
"""

from __future__ import annotations

import functools
import logging
import time
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Any

from django.conf import settings
from django.db import DatabaseError, connection
from django.db.models import Count, Value
from django.utils import timezone

from controlplane.advice.models.advice_proposal import AdviceProposal
from controlplane.automation.models.engine_action import OPEN_STATES, EngineAction
from controlplane.fleet.jobs.probe import shard_count
from controlplane.fleet.models.engine import DesiredState, Engine
from controlplane.fleet.models.pool import Pool
from controlplane.kv_nodes.models.kv_node import KvNode
from controlplane.platform.jobs.lease import is_held
from controlplane.platform.models.job_run import JobRun, JobState
from controlplane.platform.models.snapshot_version import SnapshotVersion
from controlplane.policies.models.scheduled_publish import ScheduledPublish, ScheduleState
from controlplane.publication.continued_versions import version_served
from controlplane.trials.models.canary import Canary, CanaryState
from planning.adviser.autopilot import UNSETTLED

IDLE_S = 30.0
"""Interval at which a job is woken although it is not needed."""
READ_EVERY_S = 0.4
"""Age at which counts are read again, below the shortest interval of a job."""

logger = logging.getLogger(__name__)

WorkCounts = Mapping[str, int]
"""Number of objects by name, and the snapshot's "version"; of job runs by "held JOB" and "free JOB", with and without a
holder or a pause.
"""


def read_counts(now: datetime) -> dict[str, int]:
    """Return the counts at `now`."""
    with connection.cursor() as cursor:
        cursor.execute(*_count_statement())
        counts = Counter(dict(cursor.fetchall()))
    for job, lease_until in JobRun.objects.filter(state=JobState.ACTIVE).order_by().values_list("job", "lease_until"):
        counts[f"held {job}" if is_held(lease_until, now) else f"free {job}"] += 1
    return counts


@functools.cache
def _count_statement() -> tuple[str, tuple[Any, ...]]:
    """Return the statement and its parameters, compiled once: that takes far longer than to run it."""
    first, *others = (
        rows.order_by().annotate(name_=Value(name)).values("name_").annotate(n=Count("pk")).values_list("name_", "n")
        for name, rows in {
            "pools": Pool.objects.all(),
            "engines": Engine.objects.all(),
            "probed": Engine.objects.exclude(desired_state=DesiredState.MAINTENANCE),
            "nodes": KvNode.objects.all(),
            "actions": EngineAction.objects.filter(state__in=OPEN_STATES),
            "canaries": Canary.objects.filter(state=CanaryState.RUNNING),
            # Promoted ones are followed every IDLE_S.
            "proposals": AdviceProposal.objects.filter(state__in=UNSETTLED),
            "publishes": ScheduledPublish.objects.filter(state=ScheduleState.WAITING),
        }.items()
    )
    version = SnapshotVersion.objects.annotate(name_=Value("version")).values_list("name_", "version")
    statement: tuple[str, tuple[Any, ...]] = first.union(*others, version, all=True).query.sql_with_params()
    return statement


def _at_pools(job: str) -> Callable[[WorkCounts], bool]:
    """Return whether the next round of a pool is due: runs pause between their rounds."""
    return lambda counts: counts.get(f"held {job}", 0) < counts.get("pools", 0)


def _any(name: str) -> Callable[[WorkCounts], bool]:
    return lambda counts: counts.get(name, 0) > 0


def _probe(counts: WorkCounts) -> bool:
    return counts.get("held probe", 0) < shard_count(counts.get("probed", 0))


NEEDS: Mapping[str, Callable[[WorkCounts], bool]] = {
    # Another process has changed the database, or the database is older than what gateways serve.
    "refresh_snapshot": lambda counts: counts.get("version", 0) != version_served(),
    "probe": _probe,
    "engine_health": _at_pools("engine_health"),
    "rebalance": _at_pools("rebalance"),
    "scaling": _at_pools("scaling"),
    "prefill_decode": _at_pools("prefill_decode"),
    "engine_actions": _any("actions"),
    "preflight": _any("free preflight"),
    "whatif": _any("free whatif"),
    "sovereignty_cost": _any("free sovereignty_cost"),
    "call_graph": _any("free call_graph"),
    "capacity": _any("free capacity"),
    "advice": _any("free advice"),
    "advice_autopilot": lambda counts: counts.get("held advice_autopilot", 0) < counts.get("proposals", 0),
    "savings": _any("free savings"),
    "engine_addresses": _any("engines"),
    "discovery": lambda _: any(not source.lists_all for source in settings.DISCOVERY),
    "watched_discovery": lambda _: any(source.lists_all for source in settings.DISCOVERY),
    "kv_node_silence": _any("nodes"),
    "kv_moves": _any("nodes"),
    "canary": lambda counts: counts.get("held canary", 0) < counts.get("canaries", 0),
    "scheduled_publish": _any("publishes"),
    # What they store comes from gateways that serve pools.
    "holdback": _any("pools"),
    "shadows": _any("pools"),
    "store_requests": _any("pools"),
    "store_key_usage": _any("pools"),
    "store_usage": _any("pools"),
    "store_learned_costs": _any("pools"),
    "rollup": _any("pools"),
    "incidents": _any("pools"),
    "notify": _any("pools"),
}
"""Job → whether it has work. Jobs that are not listed are always needed."""


class JobNeeds:
    """Answers for the schedule. Mutable: the last counts and their time; used in the schedule's thread."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._counts: WorkCounts | None = None
        self._read_s = float("-inf")

    def forget(self) -> None:
        """Read the counts again at the next question, because something changed."""
        self._read_s = float("-inf")

    def __call__(self, task: str) -> bool:
        """Return whether a task, for example controlplane.probe, has work."""
        need = NEEDS.get(task.removeprefix("controlplane."))
        if need is None:
            return True
        if self._clock() - self._read_s >= READ_EVERY_S:
            self._read_s = self._clock()
            self._counts = self._read()
        return self._counts is None or need(self._counts)

    def _read(self) -> WorkCounts | None:
        try:
            return read_counts(timezone.now())
        except DatabaseError as error:
            # The jobs report it, too, each in its own words.
            logger.warning("the schedule cannot read what jobs have to do", extra={"error": type(error).__name__})
            connection.close()
            return None
