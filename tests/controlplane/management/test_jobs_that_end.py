"""A process exits with the reason when its jobs end unexpectedly, so that its supervisor restarts it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.program import run_to_end

pytestmark = pytest.mark.processes

BROKEN = """
import django, os, sys
django.setup()
from controlplane.project.processes.job_threads import MonotonicScheduler
def tick(self):
    raise OSError("the broker is gone for good")
MonotonicScheduler.tick = tick
"""
GIVES_UP = """
import sys
from controlplane.project.celery import app
app.conf.broker_connection_max_retries = 0
"""
ENDS = """
import os, sys
from celery.worker import WorkController
WorkController.start = lambda self: None
"""
COMMAND = """
from django.core.management import execute_from_command_line
execute_from_command_line(["manage.py", *sys.argv[1:]])
"""
JOBS = """
from controlplane.project.processes.jobs_process import main
sys.argv = ["jobs_process", str(os.getppid())]
sys.exit(main())
"""


def run(state_dir: Path, script: str, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {
        **{name: value for name, value in os.environ.items() if name not in ("REDIS_URL", "DATABASE_URL")},
        "DJANGO_SETTINGS_MODULE": "controlplane.project.settings",
        "HEADWAY_STATE_DIR": str(state_dir),
        "HEADWAY_DRAIN_S": "0",
        **variables,
    }
    return run_to_end(["-c", script, *arguments], environment)


def test_worker_whose_beat_ends_exits_with_an_error_that_names_it(tmp_path: Path) -> None:
    done = run(tmp_path, BROKEN + COMMAND, "worker", "--only", "beat", REDIS_URL="redis://127.0.0.1:1/0")
    assert done.returncode == 1
    assert "CommandError: The worker stopped because the thread of beat stopped unexpectedly." in done.stderr


def test_worker_whose_jobs_end_exits_with_an_error_that_names_them(tmp_path: Path) -> None:
    """Celery's worker thread ends without an error after it gave up its broker."""
    done = run(tmp_path, GIVES_UP + COMMAND, "worker", "--only", "jobs", REDIS_URL="redis://127.0.0.1:1/0")
    assert done.returncode == 1
    assert "CommandError: The worker stopped because the thread of jobs stopped unexpectedly." in done.stderr


def test_jobs_process_ends_if_one_of_its_parts_ends(tmp_path: Path) -> None:
    assert run(tmp_path, BROKEN + COMMAND, "migrate").returncode == 0
    for script, part in ((BROKEN, "beat"), (ENDS, "jobs")):
        done = run(tmp_path, script + JOBS)
        assert done.returncode == 1
        assert f"the thread of {part} stopped unexpectedly" in done.stderr
