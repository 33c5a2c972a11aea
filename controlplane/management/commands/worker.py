"""`manage.py worker`: background jobs in a process of their own, for installations with Redis."""

from __future__ import annotations

import logging.config
import signal
import threading
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError, CommandParser
from typing_extensions import override

from controlplane.json_log import logging_settings


class Command(BaseCommand):
    """Runs jobs and their schedule until SIGINT or SIGTERM.

    Any number of workers may run: each wakes jobs up, and a job's lease lets one of them act. The schedule
    (beat) and the jobs can run apart: `--only beat` in one process or more, `--only jobs` in others.
    """

    help = "Run the background jobs in this process. Needs REDIS_URL; without it `manage.py up` runs them itself."

    @override
    def add_arguments(self, parser: CommandParser) -> None:
        """Take which part to run."""
        parser.add_argument(
            "--only", choices=("jobs", "beat"), help="run the jobs without their schedule, or the schedule alone"
        )

    @override
    def handle(self, *args: Any, **options: Any) -> None:
        """Start the jobs' threads and wait to be told to stop."""
        if not settings.REDIS_URL:
            raise CommandError("Without REDIS_URL jobs run inside `manage.py up`. Set REDIS_URL to run them apart.")
        from controlplane.celery import app
        from controlplane.embedded_celery import BEAT, JOBS, EmbeddedCelery

        logging.config.dictConfig(logging_settings(settings.LOG_LEVEL))
        asked_to_stop = threading.Event()
        for sign in (signal.SIGINT, signal.SIGTERM):
            signal.signal(sign, lambda *_: asked_to_stop.set())
        jobs = EmbeddedCelery(app, (options["only"],) if options["only"] else (JOBS, BEAT))
        jobs.start()
        self.stdout.write("The worker runs; its log goes to stderr.")
        self.stdout.flush()
        asked_to_stop.wait()
        jobs.stop()
