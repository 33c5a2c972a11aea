"""The systemd units pass systemd's own checks and match the program."""

from __future__ import annotations

import configparser
import re
import subprocess
import sys
from pathlib import Path

import pytest

from gateway.server.process.shutdown import DRAIN_S
from tests.deploy.packages.package_tools import DEPLOY, tool

UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
INTERPRETER = "/usr/local/lib/headway/.venv/bin/python"
EXPOSURE = 2.0
"""systemd's score from 0 (none) to 10; most units of a Debian server are above 9."""
SHUTS_AT_ONCE = {"headway-worker"}


def read(unit: Path) -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None, strict=True)
    parser.optionxform = str  # type: ignore[assignment, method-assign]
    parser.read(unit)
    return parser


def test_each_process_has_a_unit() -> None:
    names = {item.stem for item in UNITS}
    assert names == {"headway", "headway-gateway@", "headway-web", "headway-worker"}


@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.stem)
def test_a_unit_starts_an_existing_command_and_waits_for_its_drain(unit: Path) -> None:
    service = read(unit)["Service"]
    interpreter, command = service["ExecStart"].split(" ", 1)
    assert interpreter == INTERPRETER
    command = command.replace("%S", "state").replace("%i", "8001")
    done = subprocess.run(
        [sys.executable, *command.split(), "--help"], cwd=DEPLOY.parent, check=False, capture_output=True
    )
    assert done.returncode == 0, done.stderr
    assert (int(service["TimeoutStopSec"]) > DRAIN_S) == (unit.stem not in SHUTS_AT_ONCE)
    assert service["StateDirectory"] in service["Environment"]


@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.stem)
def test_systemd_reports_no_fault_and_little_exposure(unit: Path, tmp_path: Path) -> None:
    analyze = tool("systemd-analyze")
    tried = tmp_path / unit.name.replace("@.", "@8001.")
    # systemd requires a program that exists, on any machine that runs the tests.
    tried.write_text(unit.read_text().replace(INTERPRETER, sys.executable))
    verified = subprocess.run([analyze, "verify", "--man=no", tried], check=False, capture_output=True, text=True)
    assert (verified.returncode, verified.stdout + verified.stderr) == (0, "")
    judged = subprocess.run([analyze, "security", "--offline=true", tried], check=False, capture_output=True, text=True)
    score = re.search(r"Overall exposure level for \S+: ([\d.]+)", judged.stdout)
    assert score is not None, judged.stderr
    assert float(score[1]) <= EXPOSURE
