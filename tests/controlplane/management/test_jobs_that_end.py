"""A program whose jobs have ended by themselves ends too, and says why: its process manager then starts it anew."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from bench.live.live_fleet import free_ports

pytestmark = pytest.mark.processes

ROOT = Path(__file__).resolve().parents[3]
BROKEN = """
import sys
from django.core.management import execute_from_command_line
from controlplane.project.processes.monotonic_schedule import MonotonicScheduler
def tick(self):
    raise OSError("the broker is gone for good")
MonotonicScheduler.tick = tick
execute_from_command_line(["manage.py", *sys.argv[1:]])
"""


def run(state_dir: Path, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = {
        **{name: value for name, value in os.environ.items() if name not in ("REDIS_URL", "DATABASE_URL")},
        "DJANGO_SETTINGS_MODULE": "controlplane.project.settings",
        "SWITCHYARD_STATE_DIR": str(state_dir),
        "SWITCHYARD_DRAIN_S": "0",
        **variables,
    }
    command = [sys.executable, "-c", BROKEN, *arguments]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=120)


def test_a_worker_whose_beat_ends_exits_with_an_error_that_names_it(tmp_path: Path) -> None:
    done = run(tmp_path, "worker", "--only", "beat", REDIS_URL="redis://127.0.0.1:1/0")
    assert done.returncode == 1
    assert "CommandError: The worker stopped because the thread of beat stopped unexpectedly." in done.stderr


def test_the_program_ends_when_its_beat_does(tmp_path: Path) -> None:
    done = run(tmp_path, "up", "--no-demo", "--port", str(free_ports(1)[0]))
    assert done.returncode == 1
    assert "the thread of beat stopped unexpectedly" in done.stderr
