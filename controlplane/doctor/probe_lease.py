"""Does somebody probe the engines?"""

from __future__ import annotations

from django.db import DatabaseError

from controlplane.doctor.finding import Finding, ok, warning
from controlplane.doctor.installation import Installation
from controlplane.models import JobRun
from controlplane.models.job_run import JobState
from controlplane.state_lock import holder

_FIRST = "Make the database answer, then run `manage.py migrate`; `manage.py up` does so by itself."


def look(installation: Installation) -> list[Finding]:
    """Look at the leases of the probe job's shards and at who should hold them."""
    try:
        runs = list(JobRun.objects.filter(job="probe", state=JobState.ACTIVE).order_by("shard"))
    except DatabaseError as error:
        return [warning(f"The jobs cannot be read: {type(error).__name__}.", _FIRST)]
    held = [run for run in runs if run.lease_until is not None and run.lease_until > installation.now]
    shards = max((int(run.progress.get("shards", 1)) for run in held), default=0)
    if held and len(held) >= shards:
        return [ok(f"The engines are probed by {', '.join(sorted({run.lease_owner for run in held}))}.")]
    if held:
        return [
            warning(
                f"Only {len(held)} of {shards} shards of engines are probed.",
                "Look at the job again in a few seconds; if it stays so, start another `manage.py worker`.",
            )
        ]
    pid = holder(installation.state_dir)
    if pid is None and not installation.redis_url:
        return [ok("No server runs on this state directory, so nobody probes the engines.")]
    who = "`manage.py worker`" if installation.redis_url else f"the server (pid {pid})"
    return [
        warning(
            "Nobody holds the lease of the probe job: load and health of the engines are not read.",
            f"Look at the log of {who}; start it (again) if it does not run.",
        )
    ]
