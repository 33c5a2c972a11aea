"""The jobs process: Celery's worker and beat, and the intake of decisions and recorded requests."""

from __future__ import annotations

import logging
import os
import sys
import threading
import time

import django

from controlplane.project.processes.child_start import LOWER_PRIORITY, begin
from gateway.server.process.shutdown import ProcessEnd

logger = logging.getLogger(__name__)

_POLL_S = 0.05
_JOBS_S = 1.2
"""Time limit for jobs at shutdown. Jobs that take longer end with the process, and their leases expire."""


def main() -> int:
    """Run the jobs until SIGTERM. Return the exit status."""
    begin(nice=LOWER_PRIORITY)
    end = ProcessEnd(0.0)
    end.handle_signals()
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.project.settings")
    django.setup(set_prefix=False)
    from controlplane.platform.bus import fleet_keyring
    from controlplane.project.celery import app
    from controlplane.project.processes.embedded_celery import EmbeddedCelery
    from controlplane.request_log.job import keep, request_intake
    from controlplane.secret_rotation.own_secrets import answer_questions

    # Subscribes now; the job that stores what is received may start later.
    request_intake()
    answer_questions("jobs", [fleet_keyring()])
    jobs = EmbeddedCelery(
        app, on_end=lambda part: end.ask(f"the thread of {part} stopped unexpectedly", drains=False, status=1)
    )
    jobs.start()
    while not end.asked:
        time.sleep(_POLL_S)
    stopping = threading.Thread(target=jobs.stop, name="stop jobs", daemon=True)
    stopping.start()
    stopping.join(_JOBS_S)
    try:
        keep(request_intake())
    except Exception:
        # The edge of the process: it ends in any case, and the server must still be notified.
        logger.exception("what came last could not be stored")
    return end.status


if __name__ == "__main__":
    sys.exit(main())
