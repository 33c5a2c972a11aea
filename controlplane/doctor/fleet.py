"""Checks of the running system: policies, tenants, engines, node managers, gateways, and jobs."""

from __future__ import annotations

import http.client
import re
import ssl
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from urllib.parse import urlsplit

from django.db import DatabaseError

from controlplane.doctor.finding import Finding, ok, problem, warning
from controlplane.doctor.installation import Installation
from controlplane.doctor.local_server import answer_of, rejecting_key
from controlplane.fleet.engine_addressing import connection_to, key_variable
from controlplane.fleet.models.engine import DesiredState, Engine
from controlplane.fleet.models.pool import Pool
from controlplane.fleet.pool_problems import block_size_problems, role_problems, with_shared_caches
from controlplane.kv_nodes.models.kv_node import LIVE, KvNode, KvNodeState
from controlplane.platform.environment import PROGRAM
from controlplane.platform.format import some_names
from controlplane.platform.live_fleet.deciding_alone import LONG_S, REMEDY, deciding_alone, named
from controlplane.platform.live_fleet.samples import fleet_samples
from controlplane.platform.models.job_run import JobRun, JobState
from controlplane.platform.models.snapshot_version import SnapshotVersion
from controlplane.policies.models.policy import Policy
from controlplane.policies.upgrade import deviation_note, reading_problem
from controlplane.project.state_lock import holder
from gateway.base.engine_api_keys import key_remedy
from gateway.base.settings import GatewaySettings
from gateway.bus.bus_metrics import WAKE_UP_AGE
from gateway.bus.snapshot_store import FILE_NAME, SnapshotStore
from gateway.contracts.fleet_sample import FleetSample, PoolRole
from gateway.pools.engines.engine_metrics import MAX_BYTES, UnreadableMetricsError, parse_engine_metrics
from gateway.pools.engines.engine_tls import AUTHORITY, UNTRUSTED
from routing.values.counted import count

_DEVIATION_REMEDY = "Publish a version that states what applies; compare baselines in a what-if."
_UNREADABLE_REMEDY = "Roll the policy back to a version written by this release, or run the newer release."


def policies(_installation: Installation) -> list[Finding]:
    """Check that every live version is readable. Pools with an unreadable version keep their former policy.

    If a version names a baseline, or sets what is no longer a setting, its pools deviate in this point only.
    """
    try:
        policies = list(Policy.objects.exclude(live_version=None).select_related("live_version__policy"))
    except DatabaseError as error:
        return [warning(f"Cannot read the policies: {type(error).__name__}.", "Fix the database connection first.")]
    findings = []
    for policy in policies:
        live = policy.live_version
        if live is None:
            continue
        if wrong := reading_problem(live):
            says = f"This release cannot read the live version of {policy}: {wrong}. Its pools keep the last policy."
            findings.append(problem(says, _UNREADABLE_REMEDY))
        elif note := deviation_note(live.document):
            findings.append(warning(f"The live version of {policy} is not fully in effect. {note}", _DEVIATION_REMEDY))
    return findings or [ok("All live policies are readable.")]


_SHARED_REMEDY = (
    "Check “Isolate tenants’ caches” in the pool's settings on the Engines page, or PATCH its `isolated`. The "
    "first tenant's cache stays warm."
)


def tenants(_installation: Installation) -> list[Finding]:
    """List the pools whose tenants share caches."""
    try:
        shared = with_shared_caches(Pool.objects.all())
    except DatabaseError as error:
        return [warning(f"Cannot read the tenants: {type(error).__name__}.", "Fix the database connection first.")]
    findings = [warning(f"Tenants share caches in pool {pool.slug}.", _SHARED_REMEDY) for pool in shared]
    return findings or [ok("No pool shares caches between tenants.")]


_AT_ONCE = 16
_MOST_ENGINES = 200
_TIMEOUT_S = 2.0
_NAMED = 5
_FIRST = f"Fix the database connection, then run `{PROGRAM} migrate`; `{PROGRAM} up` does that itself."


def engines(installation: Installation) -> list[Finding]:
    """Check that engines respond, accept the gateway's key, and have compatible roles."""
    return [*_answers_of_engines(installation), *_keys(installation), *_roles()]


def _keys(installation: Installation) -> list[Finding]:
    """List the engines that reject the key of the gateway on this machine. This command may have another key."""
    rejecting = Engine.objects.filter(engine_id__in=rejecting_key(answer_of(installation, "/metrics"))).select_related(
        "pool"
    )
    named = [f"{engine.engine_id} ({key_variable(engine) or 'none is sent'})" for engine in rejecting]
    if not named:
        return []
    says = f"{count(len(named), 'engine rejects', 'engines reject')} the gateway's key: {some_names(named, _NAMED)}."
    return [problem(says, key_remedy(key_variable(rejecting[0])))]


def _roles() -> list[Finding]:
    try:
        rows = list(Engine.objects.values_list("pool__slug", "role"))
    except DatabaseError:
        return []
    pools: dict[str, Counter[str]] = {}
    for slug, role in rows:
        pools.setdefault(slug, Counter())[role] += 1
    return [
        warning(f"Pool {slug}: {fault}.", "Change the roles of its engines on the Engines page.")
        for slug, roles in sorted(pools.items())
        for fault in role_problems(roles)
    ]


def _answers_of_engines(_installation: Installation) -> list[Finding]:
    """Send /health requests to the first engines that should serve, without following redirects."""
    try:
        ready = Engine.objects.filter(desired_state="ready").select_related("pool")
        engines = list(ready.order_by("engine_id")[:_MOST_ENGINES])
    except DatabaseError as error:
        return [warning(f"Cannot read the engines: {type(error).__name__}.", _FIRST)]
    if not engines:
        return [
            warning(
                "No engine is ready to serve.",
                f"Run `{PROGRAM} connect URL`, or set one to ready on the Engines page.",
            )
        ]
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        answers = list(threads.map(lambda engine: _why_not(engine.connect_url), engines))
        sizes = list(threads.map(lambda engine: _block_tokens(engine.connect_url), engines))
    return [*_answering(engines, answers), *_block_sizes(engines, sizes)]


def _block_sizes(engines: Sequence[Engine], sizes: Sequence[int | None]) -> list[Finding]:
    seen = [(engine.pool.slug, engine.name, tokens) for engine, tokens in zip(engines, sizes, strict=True)]
    pools = {engine.pool.slug: engine.pool for engine in engines}
    return [
        warning(block_size_problem.sentence, block_size_problem.remedy)
        for block_size_problem in block_size_problems(pools.values(), seen)
    ]


def _answering(engines: Sequence[Engine], answers: Sequence[str]) -> list[Finding]:
    silent = [(engine.engine_id, why) for engine, why in zip(engines, answers, strict=True) if why]
    if not silent:
        return [ok(f"{count(len(engines), 'engine answers', 'engines answer')}.")]
    names = some_names([f"{engine_id} ({why})" for engine_id, why in silent], _NAMED)
    return [
        warning(
            f"No answer from {len(silent)} of {count(len(engines), 'engine')} that should serve: {names}.",
            "Start them, correct their address, or take them out of service on the Engines page. Demo engines run "
            f"only while `{PROGRAM} up` runs.",
        )
    ]


def _why_not(url: str) -> str:
    try:
        status, _ = _get(url, "/health")
        return "" if status == 200 else f"health check answers {status}"
    except TimeoutError:
        return f"no answer within {_TIMEOUT_S:.0f} s"
    except ssl.SSLCertVerificationError:
        return f"{UNTRUSTED}; {AUTHORITY} names further authorities"
    except (OSError, http.client.HTTPException) as error:
        return getattr(error, "strerror", None) or type(error).__name__


def _block_tokens(url: str) -> int | None:
    """Return the engine's block size; None if it does not report one."""
    try:
        return parse_engine_metrics(_get(url, "/metrics")[1]).block_size
    except (OSError, http.client.HTTPException, UnreadableMetricsError):
        return None


def _get(url: str, path: str) -> tuple[int, bytes]:
    connection = connection_to(url, _TIMEOUT_S)
    try:
        connection.request("GET", f"{urlsplit(url).path.rstrip('/')}{path}")
        answer = connection.getresponse()
        return answer.status, answer.read(MAX_BYTES)
    finally:
        connection.close()


def kv_nodes(_installation: Installation) -> list[Finding]:
    """Check for silent nodes, and for engines that name a node which does not serve. Skipped without nodes."""
    try:
        states = dict(KvNode.objects.values_list("name", "state"))
        named = list(Engine.objects.exclude(kv_node="").order_by("engine_id").values_list("name", "kv_node"))
    except DatabaseError:
        # The check of the engines reports it.
        return []
    silent = sorted(name for name, state in states.items() if state == KvNodeState.SILENT)
    astray = [f"{engine} ({node})" for engine, node in named if states.get(node) not in LIVE]
    findings = []
    if silent:
        findings.append(
            warning(
                f"No report from {count(len(silent), 'KV node')} for 15 s: {some_names(silent, _NAMED)}.",
                "Check their logs and their API key. Delete nodes that no longer exist "
                "(KV store page, or DELETE /api/v1/kv_nodes/{name}).",
            )
        )
    if astray:
        findings.append(
            warning(
                f"No KV node has the name set for {count(len(astray), 'engine')}: {some_names(astray, _NAMED)}.",
                f"Start `{PROGRAM} node --register`, or correct KV node on the Engines page. Demo nodes run only "
                f"while `{PROGRAM} up` runs.",
            )
        )
    serving = sum(state in LIVE for state in states.values())
    return findings or ([ok(f"{count(serving, 'KV node reports', 'KV nodes report')}.")] if serving else [])


def snapshot_age(installation: Installation) -> list[Finding]:
    """Compare the last-known-good snapshot on disk with the database, and its age with the serving limit."""
    path = installation.state_dir / FILE_NAME
    settings = GatewaySettings()
    if not path.exists():
        text = "No last-known-good snapshot yet."
        return [warning(text, "Start the server once; until then it cannot serve without its database.")]
    age = installation.now - datetime.fromtimestamp(path.stat().st_mtime, UTC)
    snapshot = SnapshotStore(installation.state_dir, settings.snapshot_max_age_s).load(installation.now.timestamp())
    if snapshot is None:
        return [warning(f"{path} is damaged or too old.", "Start the server: it writes a new one.")]
    wanted = _version()
    if wanted is not None and snapshot.version < wanted:
        text = f"The last-known-good snapshot is version {snapshot.version}, the database has {wanted}."
        return [warning(text, f"Start the server, or `{PROGRAM} up` on this state directory, to load the newer one.")]
    if wanted is not None and snapshot.version > wanted:
        text = f"The last-known-good snapshot is version {snapshot.version}, but the database is at {wanted}."
        return [warning(text, "After a restore, start the server: versions continue above what gateways have served.")]
    return [ok(f"The last-known-good snapshot is version {snapshot.version}, confirmed {_ago(age)} ago.")]


def _version() -> int | None:
    try:
        return SnapshotVersion.objects.values_list("version", flat=True).first()
    except DatabaseError:
        return None


def _ago(age: timedelta) -> str:
    seconds = max(0, round(age.total_seconds()))
    if seconds < 120:
        return f"{seconds} s"
    return f"{seconds // 60} min" if seconds < 7200 else f"{seconds // 3600} h"


FRESH_S = 5.0


def rotation(installation: Installation) -> list[Finding]:
    """List degraded engines and engines that gateways keep out of rotation, with the reasons."""
    sample = fleet_samples().latest
    fresh = sample is not None and abs(installation.now.timestamp() - sample.at) <= FRESH_S
    return out_of_rotation(sample) if sample is not None and fresh else []


def out_of_rotation(sample: FleetSample) -> list[Finding]:
    """Return findings about the engines in a merged sample that do not serve normally."""
    findings = []
    for states, one, many in _TROUBLES:
        names = [f"{engine.name} ({engine.reason})" for engine in sample.engines if engine.state in states]
        if names:
            findings.append(warning(f"{count(len(names), one, many)}: {some_names(names, _NAMED)}.", _TROUBLE_REMEDY))
    return findings or [ok(f"Gateways send requests to {count(len(sample.engines), 'engine')}.")]


_TROUBLES = (
    (("lost", "quarantined"), "engine gets no new work", "engines get no new work"),
    (("degraded",), "engine is degraded", "engines are degraded"),
)
_TROUBLE_REMEDY = "See “Engines and hits” in docs/troubleshooting.md."


def queue_owners(installation: Installation) -> list[Finding]:
    """Check for gateways that decide alone or report different owners. Skipped with a single gateway."""
    now = installation.now.timestamp()
    return judged(
        [fleet_sample for fleet_sample in fleet_samples().newest() if abs(now - fleet_sample.at) <= FRESH_S], now
    )


def judged(samples: list[FleetSample], now: float) -> list[Finding]:
    """Return the findings for the newest samples of all gateways. `now` is unix seconds."""
    roles: dict[str, list[PoolRole]] = {}
    for sample in samples:
        for pool in sample.pools:
            roles.setdefault(pool.pool_id, []).extend(pool.roles)
    findings = []
    for pool_id, pool_roles in sorted(roles.items()):
        alone = deciding_alone(pool_roles, now)
        settled = {(item.epoch, item.owner) for item in pool_roles if item.owner and now - item.since > LONG_S}
        if alone:
            findings.append(warning(f"Gateways decide alone about {pool_id}: {named(alone)}.", REMEDY))
        elif len(settled) > 1:
            owners = ", ".join(f"{owner} (epoch {epoch})" for epoch, owner in sorted(settled))
            findings.append(
                warning(
                    f"Gateways report different owners of {pool_id}: {owners}.",
                    "Let the gateways reach each other's HEADWAY_PEER_LISTEN.",
                )
            )
    shared = sum(1 for pool_roles in roles.values() if pool_roles)
    return findings or ([ok(f"The gateways agree on who owns {count(shared, 'pool')}.")] if shared else [])


def probe_lease(installation: Installation) -> list[Finding]:
    """Check the leases of the probe job's shards and which processes should hold them."""
    try:
        if not Engine.objects.exclude(desired_state=DesiredState.MAINTENANCE).exists():
            return [ok("There are no engines to probe.")]
        runs = list(JobRun.objects.filter(job="probe", state=JobState.ACTIVE).order_by("shard"))
    except DatabaseError as error:
        return [warning(f"Cannot read the jobs: {type(error).__name__}.", _FIRST)]
    held = [run for run in runs if run.lease_until is not None and run.lease_until > installation.now]
    shards = max((int(run.progress.get("shards", 1)) for run in held), default=0)
    if held and len(held) >= shards:
        return [ok(f"Engines are probed by {', '.join(sorted({run.lease_owner for run in held}))}.")]
    if held:
        return [
            warning(
                f"Only {len(held)} of {shards} engine shards are probed.",
                f"Check again in a few seconds. If it persists, start another `{PROGRAM} worker`.",
            )
        ]
    pid = holder(installation.state_dir)
    if pid is None and not installation.redis_url:
        return [ok("No server runs on this state directory, so the engines are not probed.")]
    who = f"`{PROGRAM} worker`" if installation.redis_url else f"the server (pid {pid})"
    return [
        warning(
            "The probe job has no lease holder: load and health of engines are not updated.",
            f"Check the log of {who}; start it if it does not run.",
        )
    ]


LATE_S = 10.0
"""The most frequent jobs run twice a second; this allows for a busy machine."""
_AGE = re.compile(rf"^{WAKE_UP_AGE} (\S+)$", re.MULTILINE)


def wake_up(installation: Installation) -> list[Finding]:
    """Report how long ago the job schedule last ran on this machine's server."""
    age_s = _age_s(installation)
    if age_s is None:
        return [ok("No local server reports when the job schedule last ran.")]
    if age_s <= LATE_S:
        return [ok(f"The job schedule last ran {age_s:.0f} s ago.")]
    what = f"a `{PROGRAM} worker` with its schedule" if installation.redis_url else "the server"
    return [
        problem(
            f"The job schedule has not run for {age_s:.0f} s: nothing is checked, scaled or published.",
            f"Restart {what}.",
        )
    ]


def _age_s(installation: Installation) -> float | None:
    match = _AGE.search((answer_of(installation, "/metrics") or b"").decode("utf-8", "replace"))
    return float(match[1]) if match else None
