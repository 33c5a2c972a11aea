"""One server process per state directory."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from controlplane.project.state_lock import StateInUseError, hold_state

ROOT = Path(__file__).resolve().parents[3]
HOLDER = (
    "import sys, time; from pathlib import Path; from controlplane.project.state_lock import hold_state;"
    "hold_state(Path(sys.argv[1])); print('held', flush=True); time.sleep(600)"
)


@pytest.fixture
def holder(tmp_path: Path) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    with process:
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_second_process_is_rejected_with_the_pid_of_the_first(tmp_path: Path, holder: subprocess.Popen[str]) -> None:
    with pytest.raises(StateInUseError) as caught:
        hold_state(tmp_path)
    assert caught.value.pid == str(holder.pid)
    assert f"pid {holder.pid}" in str(caught.value)


def test_killed_process_leaves_no_lock(tmp_path: Path, holder: subprocess.Popen[str]) -> None:
    holder.kill()
    holder.wait()
    with hold_state(tmp_path) as file:
        file.seek(0)
        assert file.read().strip() == str(os.getpid())


def test_same_process_may_lock_again(tmp_path: Path) -> None:
    with hold_state(tmp_path) as file:
        assert hold_state(tmp_path) is file
