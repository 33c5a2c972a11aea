"""One row per pool: its size, who controls it, and what each automation is allowed to do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from controlplane.automation.models.engine_action import OPEN_STATES, EngineAction
from controlplane.automation.models.engine_health import EngineHealth, HealthState
from controlplane.automation.observation import FleetObservation, fleet_observation
from controlplane.automation.pool_policy import mode_in_force, pool_automation_of, pool_policy
from controlplane.automation.reading import DOCUMENTS
from controlplane.fleet.models.engine import Engine
from controlplane.fleet.models.pool import Pool
from controlplane.objectives.objective import targets
from controlplane.platform.format import count, moment, sentence, some_names
from controlplane.platform.models.job_run import JobRun, JobState
from web.automation.pool import late_words, on_time_target
from web.automation.words import MODES, TITLES, change_words
from web.fleet.topology.drawer import FRESH_S
from web.live.feed import fleet_feed


def overview_finding(rows: Sequence[dict[str, Any]]) -> str:
    """Return the most important fact about all pools in one sentence."""
    late = [f"{row['pool'].name}: {row['late'].rstrip('.')}" for row in rows if row["late"]]
    failed = [f"{row['pool'].name}: {count(row['failed'], 'engine')} failed" for row in rows if row["failed"]]
    frozen = [f"{row['pool'].name} is frozen" for row in rows if row["frozen"]]
    out = [
        f"{row['pool'].name}: {count(row['quarantined'], 'engine')} quarantined" for row in rows if row["quarantined"]
    ]
    if wrong := [*failed, *late, *frozen, *out]:
        return some_names(wrong, 2)
    advice = [(row["pool"].name, item) for row in rows for item in row["automations"] if item["wants"]]
    if advice:
        name, item = advice[0]
        return (
            f"{name}: {item['title'].lower()} {item['mode'].lower()}: {item['wants'][0].lower()}{item['wants'][1:-1]}"
        )
    return f"{count(len(rows), 'pool')} steady, no action due" if rows else "Automation"


def overview_rows(pools: Sequence[Pool], now: datetime) -> list[dict[str, Any]]:
    """Return one row per pool, in order. The number of queries does not depend on the number of pools."""
    rows = Engine.objects.filter(pool__in=pools).values_list("pool", "engine_id", "name", "role", "desired_state")
    engines: dict[int, list[tuple[str, str, str, str]]] = {}
    for pool_id, *engine in rows:
        engines.setdefault(pool_id, []).append((engine[0], engine[1], engine[2], engine[3]))
    actions = Counter(EngineAction.objects.filter(pool__in=pools, state__in=OPEN_STATES).values_list("pool", flat=True))
    out = Counter(
        EngineHealth.objects.filter(engine__pool__in=pools, state=HealthState.QUARANTINED).values_list(
            "engine__pool", flat=True
        )
    )
    runs = JobRun.objects.filter(job__in=DOCUMENTS, shard__in=[pool.pk for pool in pools], state=JobState.ACTIVE)
    plans = {(run.shard, run.job): run for run in runs.only("shard", "job", "plan", "outcome")}
    # Read once, so that all rows show the same moment.
    observed, latest, objectives = fleet_observation(), fleet_feed().latest, targets()
    fresh = latest.pools if latest is not None and now.timestamp() - latest.at <= FRESH_S else ()
    samples = {sample.pool_id: sample for sample in fresh}
    made = []
    for pool in pools:
        target = on_time_target(pool.slug, objectives, pool_policy(pool).automation.scaling)
        sample = samples.get(pool.slug)
        made.append(
            {
                **_row(pool, engines.get(pool.pk, []), observed, plans, now),
                "on_time": sample.on_time_share if sample is not None else None,
                "late": late_words(sample, target),
                "quarantined": out[pool.pk],
                "actions": actions[pool.pk],
            }
        )
    return made


def _row(
    pool: Pool,
    engines: Sequence[tuple[str, str, str, str]],
    observed: FleetObservation,
    plans: dict[tuple[int, str], JobRun],
    now: datetime,
) -> dict[str, Any]:
    wanted = [engine_id for engine_id, _, _, desired in engines if desired == "ready"]
    reports = [observed.report(engine_id) for engine_id in wanted]
    switches = pool_automation_of(pool)
    until = switches.override_until
    held = moment(until, now) if until is not None and until > now else None
    names = {engine_id: name for engine_id, name, _, _ in engines}
    return {
        "pool": pool,
        "wanted": len(wanted),
        "running": sum(report is not None and report.reachable for report in reports),
        "asleep": sum(desired == "asleep" for *_, desired in engines),
        "failed": sum(report is not None and not report.reachable for report in reports),
        "frozen": switches.frozen,
        "held": held,
        "by": switches.changed_by,
        "automations": _automations(pool, {role for _, _, role, _ in engines}, names, plans),
    }


def _automations(
    pool: Pool, roles: set[str], names: dict[str, str], plans: dict[tuple[int, str], JobRun]
) -> list[dict[str, str]]:
    documents = pool_policy(pool).automation
    automations = []
    for job, part in DOCUMENTS.items():
        if job == "prefill_decode" and not roles - {"mixed"}:
            continue
        word, shape = MODES[mode_in_force(pool, getattr(documents, part).mode)]
        run = plans.get((pool.pk, job))
        wants = change_words(job, run.plan, names) if run is not None else ""
        reason = str(run.outcome.get("reason", "")) if run is not None else ""
        automations.append(
            {
                "title": TITLES[job],
                "mode": word,
                "shape": shape,
                "wants": sentence(wants),
                "reason": sentence(reason),
            }
        )
    return automations
