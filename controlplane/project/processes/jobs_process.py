"""The jobs process of `manage.py up`: Celery's worker and beat, and the intake of decisions and recorded requests."""

from __future__ import annotations

import os
import sys

import django

from controlplane.project.processes.child_start import LOWER_PRIORITY, begin
from gateway.server.process.shutdown import ProcessEnd


def main() -> int:
    """Run the jobs until SIGTERM. Return the exit status."""
    begin(nice=LOWER_PRIORITY)
    end = ProcessEnd(0.0)
    end.handle_signals()
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.project.settings")
    django.setup(set_prefix=False)
    from controlplane.project.processes.job_threads import BEAT, JOBS, run_jobs

    run_jobs("jobs", (JOBS, BEAT), end)
    return end.status


if __name__ == "__main__":
    sys.exit(main())
