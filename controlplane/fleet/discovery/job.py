"""The job that reads every discovery source. A lease per source ensures that one process reads it at a time."""

from __future__ import annotations

import logging
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from celery import shared_task
from django.conf import settings
from django.utils import timezone

from controlplane.fleet.discovery.dns_source import engines_of_name
from controlplane.fleet.discovery.file_source import engines_of_file
from controlplane.fleet.discovery.found_engine import DiscoveryOutageError, FoundEngine
from controlplane.fleet.discovery.reconcile import Reconciled, Reconciliation
from controlplane.fleet.discovery.setting import DNS, FILE, INFERENCE_POOL, KUBERNETES, SRV, DiscoverySource
from controlplane.fleet.models.engine import Engine
from controlplane.fleet.models.pool import Pool
from controlplane.platform.jobs.lease import acquire, release, renew, this_owner
from controlplane.platform.models.job_run import JobRun, JobState
from routing.values.counted import count

logger = logging.getLogger(__name__)

JOB = "discovery"
LEASE = timedelta(seconds=60)
"""Longer than a scan, because queries of names and clusters time out after seconds."""
MAX_PROBLEMS = 5
Scan = Callable[[DiscoverySource], list[FoundEngine]]


def _engines_of_cluster(source: DiscoverySource) -> list[FoundEngine]:
    # The client takes half a second and some memory to import, which only those who use it should pay.
    from controlplane.fleet.discovery.kubernetes_source import engines_of_cluster

    return engines_of_cluster(source)


def _engines_of_service(source: DiscoverySource) -> list[FoundEngine]:
    # dnspython likewise.
    from controlplane.fleet.discovery.dns_source import engines_of_service

    return engines_of_service(source)


SCANS: dict[str, Scan] = {
    FILE: engines_of_file,
    DNS: engines_of_name,
    SRV: _engines_of_service,
    KUBERNETES: _engines_of_cluster,
    INFERENCE_POOL: _engines_of_cluster,
}


@shared_task(name="controlplane.discovery", ignore_result=True)
def discovery() -> None:
    """Run every five seconds: one scan of each source of HEADWAY_DISCOVERY that has to be polled."""
    _scan(watched=False)


@shared_task(name="controlplane.watched_discovery", ignore_result=True)
def watched_discovery() -> None:
    """Run every five seconds and after each change in a cluster: one scan of each source that is watched.

    Polled sources have a job of their own, because they count the scans that miss an engine.
    """
    _scan(watched=True)


def _scan(*, watched: bool) -> None:
    for shard, source in enumerate(settings.DISCOVERY):
        if source.lists_all == watched:
            scan_source(source, shard, SCANS[source.kind])


def scan_source(source: DiscoverySource, shard: int, scan: Scan) -> None:
    """Scan one source once, unless another process does. Return the run's progress."""
    lease = acquire(JOB, this_owner(), LEASE, shard=shard)
    if lease is None:
        return
    before = JobRun.objects.get(pk=lease.run_id).progress
    # After a change of the setting the shard's progress belongs to another source.
    progress = _scanned(source, before if before.get("source") == source.name else {}, scan)
    # Logged once, not with every scan of an outage.
    if progress["problem"] and progress["problem"] != before.get("problem"):
        logger.warning("discovery is incomplete", extra={"source": source.name, "problem": progress["problem"]})
    held = renew(lease, LEASE, progress=progress)
    if held is not None:
        release(held)


def _scanned(source: DiscoverySource, before: dict[str, Any], scan: Scan) -> dict[str, Any]:
    """Scan the source and return the progress. An outage changes no engine."""
    missed: dict[str, int] = before.get("missed", {})
    progress: dict[str, Any] = {"source": source.name, "pool": source.pool, "missed": missed, "problem": ""}
    pool = Pool.objects.filter(slug=source.pool).first()
    if pool is None:
        return {**progress, "problem": f"There is no pool {source.pool}. Connect one engine of it first."}
    try:
        listed = scan(source)
    # An outage must not drain engines that still serve.
    except DiscoveryOutageError as error:
        kept = Engine.objects.filter(pool=pool, source=source.name).count()
        return {**progress, "engines": kept, "problem": f"{error}. {count(kept, 'engine')} kept as last listed."}
    done = Reconciliation(pool, source.name, missed, timezone.now(), complete=source.lists_all).run(listed)
    return {**progress, "engines": len(listed), "missed": done.missed, "problem": _problem(done)}


def _problem(done: Reconciled) -> str:
    more = f" and {len(done.problems) - MAX_PROBLEMS} more" if len(done.problems) > MAX_PROBLEMS else ""
    return "; ".join(done.problems[:MAX_PROBLEMS]) + more


def discovery_problems(slugs: set[str]) -> list[str]:
    """Return the problems of these pools' sources, one sentence each."""
    runs = JobRun.objects.filter(job=JOB, state=JobState.ACTIVE, shard__lt=len(settings.DISCOVERY))
    reports = [run.progress for run in runs.order_by("shard")] if settings.DISCOVERY else []
    return [
        f"Discovery of pool {item['pool']} from {item['source']}: {item['problem']}"
        for item in reports
        if item.get("problem") and item.get("pool") in slugs
    ]
