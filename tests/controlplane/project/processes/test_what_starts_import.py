"""Modules that a process must not import at its start, because imports take most of the start-up time."""

from __future__ import annotations

import subprocess
import sys

import pytest

DJANGO = "import django; django.setup(set_prefix=False)"
UP = f"{DJANGO}; import controlplane.management.commands.up"
WEB = "import controlplane.project.processes.web_process, controlplane.project.asgi, controlplane.project.urls"
JOBS = f"{DJANGO}; from controlplane.project.celery import app; app.loader.import_default_modules()"


@pytest.mark.parametrize(
    ("start", "absent"),
    [
        pytest.param(UP, "gateway.app controlplane.project.urls kubernetes celery", id="supervisor"),
        pytest.param(WEB, "gateway.app routing.router kubernetes", id="web"),
        pytest.param(JOBS, "gateway.app controlplane.project.urls kubernetes", id="jobs"),
    ],
)
def test_process_imports_only_what_it_needs_at_its_start(start: str, absent: str) -> None:
    program = f"{start}\nimport sys\nprint(*sorted(set({absent.split()}) & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), done.returncode) == ("", 0), done.stderr
