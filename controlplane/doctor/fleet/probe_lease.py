"""Does any process probe the engines?"""

from __future__ import annotations

from django.db import DatabaseError

from controlplane.doctor.finding import Finding, ok, warning
from controlplane.doctor.installation import Installation
from controlplane.platform.models.job_run import JobRun, JobState
from controlplane.project.state_lock import holder

_FIRST = "Fix the database connection, then run `manage.py migrate`; `manage.py up` does that itself."


def look(installation: Installation) -> list[Finding]:
    """Look at the leases of the probe job's shards and at who should hold them."""
    try:
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
                "Check again in a few seconds. If it persists, start another `manage.py worker`.",
            )
        ]
    pid = holder(installation.state_dir)
    if pid is None and not installation.redis_url:
        return [ok("No server runs on this state directory, so the engines are not probed.")]
    who = "`manage.py worker`" if installation.redis_url else f"the server (pid {pid})"
    return [
        warning(
            "The probe job has no lease holder: load and health of engines are not read.",
            f"Check the log of {who}; start it if it does not run.",
        )
    ]
