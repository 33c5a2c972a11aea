"""`manage.py worker`: runs background jobs in a separate process, for installations with Redis."""

from __future__ import annotations

import logging.config
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser
from typing_extensions import override

from controlplane.platform.environment import PROGRAM
from controlplane.project.checks import OURS
from controlplane.project.json_log import logging_settings
from controlplane.project.unusable_database import reject
from gateway.server.process.shutdown import ProcessEnd


class Command(BaseCommand):
    """Runs jobs and their schedule until SIGINT or SIGTERM.

    Any number of workers may run: each wakes jobs, and a job's lease allows only one of them to act. The schedule
    (beat) and the jobs can run separately: `--only beat` in some processes, `--only jobs` in others.
    """

    requires_system_checks = OURS
    help = f"Run the background jobs in this process. Requires REDIS_URL. Without it, `{PROGRAM} up` runs them."

    @override
    def add_arguments(self, parser: CommandParser) -> None:
        """Declare the --only option."""
        parser.add_argument("--only", choices=("jobs", "beat"), help="run only the jobs, or only their schedule")

    @override
    def handle(self, *args: Any, **options: Any) -> None:
        """Start the jobs' threads, and wait for a stop signal."""
        if not settings.REDIS_URL:
            raise CommandError(
                f"Without REDIS_URL, jobs run inside `{PROGRAM} up`. Set REDIS_URL to run them separately."
            )
        reject()
        from controlplane.project.processes.job_threads import BEAT, JOBS, run_jobs

        logging.config.dictConfig(logging_settings(settings.LOG_LEVEL))
        end = ProcessEnd(0.0)
        end.handle_signals()
        run_jobs("worker", (options["only"],) if options["only"] else (JOBS, BEAT), end, self._greet)
        if end.status:
            raise CommandError(f"The worker stopped because {end.why}.")

    def _greet(self) -> None:
        self.stdout.write("The worker is running and logs to stderr.")
        self.stdout.flush()
