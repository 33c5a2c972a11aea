"""The idle benchmark: names of processes, and costs read from /proc."""

from __future__ import annotations

import subprocess
import sys

import pytest

from bench.installation.idle import costs, name_of
from controlplane.project.processes.child_process import python
from controlplane.project.processes.serving import _argv

SPIN = "import time; end = time.monotonic() + 30\nwhile time.monotonic() < end: pass"


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (_argv("jobs_process"), "jobs"),
        ((*python("simulator.engine_server"), "--port", "1"), "engines"),
        ((sys.executable, "manage.py", "up", "--demo"), "supervisor"),
        (("/opt/bin/valkey-server", "*:0"), "valkey-server"),
    ],
)
def test_processes_are_named_by_their_part(command: tuple[str, ...], name: str) -> None:
    assert name_of("\0".join(command) + "\0") == name


def test_a_busy_child_and_its_memory_are_measured() -> None:
    child = subprocess.Popen([sys.executable, "-c", SPIN])
    try:
        cost = costs(child.pid, 1.0)
    finally:
        child.kill()
        child.wait()
    (measured,) = cost.values()
    assert 0.0 < measured.cpu_share <= 1.1
    assert 1.0 < measured.pss_mb <= measured.rss_mb
