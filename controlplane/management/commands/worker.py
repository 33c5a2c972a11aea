"""`manage.py worker`: runs background jobs in a separate process, for installations with Redis."""

from __future__ import annotations

import logging.config
import time
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser
from typing_extensions import override

from controlplane.project.checks import OURS
from controlplane.project.json_log import logging_settings
from controlplane.project.pre_release import reject
from gateway.server.process.shutdown import ProcessEnd

_POLL_S = 0.1


class Command(BaseCommand):
    """Runs jobs and their schedule until SIGINT or SIGTERM.

    Any number of workers may run: each wakes jobs, and a job's lease allows only one of them to act. The schedule
    (beat) and the jobs can run separately: `--only beat` in some processes, `--only jobs` in others.
    """

    requires_system_checks = OURS
    help = "Run the background jobs in this process. Requires REDIS_URL. Without it, `manage.py up` runs them."

    @override
    def add_arguments(self, parser: CommandParser) -> None:
        """Declare the --only option."""
        parser.add_argument("--only", choices=("jobs", "beat"), help="run only the jobs, or only their schedule")

    @override
    def handle(self, *args: Any, **options: Any) -> None:
        """Start the jobs' threads, and wait for a stop signal."""
        if not settings.REDIS_URL:
            raise CommandError(
                "Without REDIS_URL, jobs run inside `manage.py up`. Set REDIS_URL to run them separately."
            )
        reject()
        from controlplane.platform.bus import fleet_keyring
        from controlplane.project.celery import app
        from controlplane.project.processes.embedded_celery import BEAT, JOBS, EmbeddedCelery
        from controlplane.secret_rotation.own_secrets import answer_questions

        logging.config.dictConfig(logging_settings(settings.LOG_LEVEL))
        end = ProcessEnd(0.0)
        end.handle_signals()
        parts = (options["only"],) if options["only"] else (JOBS, BEAT)
        jobs = EmbeddedCelery(
            app, parts, on_end=lambda part: end.ask(f"the thread of {part} stopped unexpectedly", status=1)
        )
        jobs.start()
        answer_questions("worker", [fleet_keyring()])
        self.stdout.write("The worker is running and logs to stderr.")
        self.stdout.flush()
        while not end.asked:
            time.sleep(_POLL_S)
        jobs.stop()
        if end.status:
            raise CommandError(f"The worker stopped because {end.why}.")
