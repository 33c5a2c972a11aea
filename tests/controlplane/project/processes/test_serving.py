"""Gateway, web, and jobs as processes that cannot start; tests/end_to_end runs them successfully."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from bench.live.loopback_ports import free_ports
from tests.program import run_to_end

pytestmark = pytest.mark.processes


def error_of(state_dir: Path) -> str:
    """Start the program, which must fail, and return its error."""
    environment = {**os.environ, "HEADWAY_STATE_DIR": str(state_dir)}
    done = run_to_end(["manage.py", "up", "--port", str(free_ports(1)[0])], environment)
    assert done.returncode == 1
    return done.stderr


def test_program_whose_web_process_cannot_start_names_its_log_and_exits(tmp_path: Path) -> None:
    # A directory where its socket belongs.
    (tmp_path / "web.sock").mkdir()
    assert f"The server could not start; see {tmp_path / 'log'}" in error_of(tmp_path)
    assert "web.sock" in (tmp_path / "log" / "web.log").read_text()


def test_bus_that_cannot_listen_is_reported(tmp_path: Path) -> None:
    (tmp_path / "bus.sock").mkdir()
    assert f"{tmp_path / 'bus.sock'} cannot be used for the bus" in error_of(tmp_path)


@pytest.mark.parametrize("module", ["gateway_process", "web_process", "jobs_process"])
def test_part_does_not_start_without_its_supervisor(module: str) -> None:
    done = run_to_end(["-m", f"controlplane.project.processes.{module}"], os.environ)
    assert done.returncode == 1
    assert "manage.py up" in done.stderr
