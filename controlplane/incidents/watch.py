"""Follows the live samples of this process as readings for the detection of incidents."""

from __future__ import annotations

import threading
from collections import deque
from functools import cache

from controlplane.history.annotation import Annotation, AnnotationLog
from controlplane.kv_nodes.models.kv_node import KvNode, KvNodeState
from controlplane.platform.live_fleet.samples import fleet_samples
from controlplane.platform.models.job_run import JobRun, JobState
from gateway.contracts.fleet_sample import EngineSample, FleetSample, PoolSample
from gateway.contracts.outcomes import OutcomeCounts, PoolOutcomes
from planning.incidents.signs import (
    ALL,
    ON_TIME_TARGET,
    Change,
    EngineSigns,
    FleetSigns,
    Outage,
    Outcomes,
    PoolSigns,
    SignLog,
    Tables,
)

EVERY_S = 1.0
"""Minimum seconds between two readings."""
GAP_S = 2.0
"""Seconds without a sample that count as lateness of the gateway, because a blocked loop reports nothing."""
CHANGES_KEPT_S = 900.0
MAX_CHANGES = 256
ROUND_FAILED = "the last round failed; see the log"
"""The outcome that controlplane.automation.rounds stores for a failed round."""
JOB_FAILS_FOR_S = 30.0
_CHANGES = {"policy": "policy", "left": "leave", "draining": "leave", "maintenance": "leave"}
"""Kind of a marker → kind of the change."""
_DIMENSIONS = ("tenants", "keys", "lengths", "classes")


class IncidentWatch:
    """Mutable: the readings, the changes of the last minutes, and since when something is cut off. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.log = SignLog()
        self._before: FleetSample | None = None
        self._read_at = 0.0
        self._away_s = 0.0
        self._markers = AnnotationLog(span_s=CHANGES_KEPT_S)
        self._marker = 0
        self._seen_up: set[tuple[str, str]] = set()
        self._cut: dict[tuple[str, str], float] = {}
        self._down: dict[tuple[str, str], float] = {}
        self._changes: deque[Change] = deque(maxlen=MAX_CHANGES)
        self._targets: dict[str, float] = {"": ON_TIME_TARGET}

    def take(self, sample: FleetSample) -> None:
        """Add one sample."""
        with self._lock:
            before, self._before = self._before, sample
            self._markers.follow(before, sample)
            self._away_s += _away_s(before, sample)
            news, self._marker = self._markers.recent(self._marker), self._markers.last_number
            self._changes += [_change(item) for item in news if item.kind in _CHANGES]
            if not 0 <= sample.at - self._read_at < EVERY_S:
                self._read_at = sample.at
                self.log.add(self._signs(sample))

    def changes(self) -> list[Change]:
        """Return the changes of the last minutes."""
        with self._lock:
            return list(self._changes)

    @property
    def lock(self) -> threading.Lock:
        """Return the lock under which `log` may be read: samples arrive in another thread."""
        return self._lock

    def note_targets(self, targets: dict[str, float]) -> bool:
        """Set the target share by pool for the next readings, and return whether that changes one.

        "" has that of all other pools.
        """
        with self._lock:
            before, self._targets = self._targets, targets
            return before != targets

    def note_outages(self, matches: set[tuple[str, str]], at: float) -> None:
        """Set the nodes and jobs that are cut off now, as (kind, name). Links are in the samples."""
        with self._lock:
            for key in self._down.keys() - matches:
                del self._down[key]
            for key in matches:
                self._down.setdefault(key, at)

    def _signs(self, sample: FleetSample) -> FleetSigns:
        self._follow_links(sample)
        late = {"job": JOB_FAILS_FOR_S}
        outages = tuple(
            Outage(kind, name, since)
            for (kind, name), since in sorted({**self._down, **_cut_off(self._seen_up, self._cut)}.items())
            if sample.at - since >= late.get(kind, 0.0)
        )
        engines = {engine.engine_id: _engine_signs(engine) for engine in sample.engines}
        running: dict[str, int] = {}
        for engine in sample.engines:
            running[engine.pool_id] = running.get(engine.pool_id, 0) + engine.running + engine.bound
        return FleetSigns(
            at=sample.at,
            # Pools whose requests another router routes have no outcomes here.
            pools={
                pool.pool_id: _pool_signs(pool, running.get(pool.pool_id, 0), self._target(pool.pool_id))
                for pool in sample.pools
                if pool.outcomes is not None and not pool.observes
            },
            engines=engines,
            away_s=self._away_s,
            rejects=sample.lateness is not None and sample.lateness.rejects,
            outages=outages,
        )

    def _target(self, pool_id: str) -> float:
        return self._targets.get(pool_id, self._targets[""])

    def _follow_links(self, sample: FleetSample) -> None:
        up = {(_pair(item.region, link.region), link.up) for item in sample.regions for link in item.links}
        # A link that never was up belongs to a region that has not started.
        self._seen_up |= {pair for pair, is_up in up if is_up}
        down = {pair for pair, is_up in up if not is_up} & self._seen_up
        self._cut = {pair: self._cut.get(pair, sample.at) for pair in down}


def _pair(one: str, other: str) -> tuple[str, str]:
    """Return a link's regions: a link that is down in one direction is down."""
    return min(one, other), max(one, other)


def _cut_off(links: set[tuple[str, str]], cut: dict[tuple[str, str], float]) -> dict[tuple[str, str], float]:
    """Return since when regions and other links are cut off, by (kind, name).

    A region is cut off if all its links are down; a fleet of two regions shows only that their link is.
    """
    regions = {region for pair in cut for region in pair}
    of_region = {region: [pair for pair in links if region in pair] for region in regions}
    alone = {region for region, pairs in of_region.items() if len(pairs) > 1 and all(pair in cut for pair in pairs)}
    since = {("region", region): min(cut[pair] for pair in of_region[region]) for region in alone}
    return since | {("link", " – ".join(pair)): at for pair, at in cut.items() if not alone & set(pair)}


def cut_off() -> set[tuple[str, str]]:
    """Return the silent nodes and the failing jobs in the database, as (kind, name)."""
    nodes = KvNode.objects.filter(state=KvNodeState.SILENT).values_list("name", flat=True)
    failing = JobRun.objects.filter(state=JobState.ACTIVE, outcome__reason=ROUND_FAILED)
    return {*(("node", name) for name in nodes), *(("job", job) for job in failing.values_list("job", flat=True))}


@cache
def incident_watch() -> IncidentWatch:
    """Return this process's watch, which follows all gateways."""
    watch = IncidentWatch()
    fleet_samples().subscribe(watch.take)
    return watch


def _away_s(before: FleetSample | None, sample: FleetSample) -> float:
    """Return the seconds between two samples for which the gateway was blocked."""
    if before is None or sample.seq <= before.seq:
        return 0.0
    gap_s = sample.at - before.at
    missing_s = gap_s if gap_s > GAP_S else 0.0
    if sample.lateness is None:
        return missing_s
    known = before.lateness
    same = known is not None and known.since <= sample.lateness.since + 1.0 and known.away_s <= sample.lateness.away_s
    reported_s = sample.lateness.away_s - (known.away_s if known is not None and same else 0.0)
    return max(missing_s, min(reported_s, gap_s) if same else reported_s)


def _change(marker: Annotation) -> Change:
    subject = marker.label.removeprefix("v").removesuffix(" live") if marker.kind == "policy" else marker.engine_id
    return Change(marker.at, _CHANGES[marker.kind], marker.pool_id, subject or marker.label, marker.text)


def _pool_signs(pool: PoolSample, running: int, target: float) -> PoolSigns:
    works = {prefix.key: sum(prefix.work_s_by_engine.values()) for prefix in pool.prefixes}
    total = sum(works.values())
    return PoolSigns(
        pool_id=pool.pool_id,
        name=pool.name,
        target=target,
        tables=_tables(pool.outcomes or PoolOutcomes()),
        waiting=pool.unbound + running,
        prefixes={key: work / total for key, work in works.items()} if total > 0 else {},
    )


def _tables(outcomes: PoolOutcomes) -> Tables:
    tables: Tables = {ALL: {"": _outcomes(outcomes.total)}}
    for dimension in _DIMENSIONS:
        tables[dimension] = {row: _outcomes(counts) for row, counts in getattr(outcomes, dimension).items()}
    return tables


def _outcomes(counts: OutcomeCounts) -> Outcomes:
    return counts.on_time, counts.late, counts.failed, counts.rejected


def _engine_signs(engine: EngineSample) -> EngineSigns:
    counts, faults = engine.counts, engine.faults
    return EngineSigns(
        engine_id=engine.engine_id,
        name=engine.name,
        pool_id=engine.pool_id,
        incarnation=engine.incarnation,
        state=engine.state,
        reason=engine.reason,
        since=engine.since,
        running=engine.running,
        in_flight_s=engine.in_flight_s,
        restarts=faults.restarts if faults is not None else engine.incarnation,
        progress=counts.first_tokens_total + counts.chunks_total if counts is not None else 0,
        slowness=counts.slowness if counts is not None else None,
        slowness_samples=counts.slowness_samples if counts is not None else 0,
        failures_in_row=counts.failures_in_row if counts is not None else 0,
        trust=engine.index_trust,
        prompt_tokens=engine.prompt_tokens_total,
        cached_tokens=engine.cached_tokens_total,
        tokenizer_late=faults.tokenizer_late if faults is not None else 0,
        dispatched_tokens=engine.dispatched_tokens_total,
        dispatched_hits=engine.dispatched_hits_total,
        removed_blocks=faults.evictions if faults is not None else None,
        block_tokens=engine.block_tokens or 0,
    )
