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
    """Look at the lease of the probe job and at who should hold it."""
    try:
        run = JobRun.objects.filter(job="probe", state=JobState.ACTIVE).order_by("-pk").first()
    except DatabaseError as error:
        return [warning(f"The jobs cannot be read: {type(error).__name__}.", _FIRST)]
    if run is not None and run.lease_until is not None and run.lease_until > installation.now:
        return [ok(f"The engines are probed by {run.lease_owner}.")]
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
