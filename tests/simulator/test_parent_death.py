from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from simulator import parent_death
from simulator.parent_death import die_with_parent
from tests.patience import PATIENCE_S, wait_until

_CHILD = (
    "import os, sys, time; from simulator.parent_death import die_with_parent; "
    "die_with_parent(int(sys.argv[1])); print(os.getpid(), flush=True); time.sleep(60)"
)
_PARENT = (
    "import os, subprocess, sys, time; "
    f"subprocess.Popen([sys.executable, '-c', {_CHILD!r}, str(os.getpid())]); time.sleep(60)"
)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    with open(f"/proc/{pid}/stat") as stat:  # noqa: PTH123 — /proc, read at once
        return stat.read().rsplit(")", 1)[1].split()[0] != "Z"


@pytest.mark.processes
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_a_killed_parent_takes_its_child_with_it() -> None:
    with subprocess.Popen([sys.executable, "-c", _PARENT], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        assert _alive(child)
        parent.send_signal(signal.SIGKILL)
        parent.wait(timeout=PATIENCE_S)
    wait_until(lambda: not _alive(child), "the child outlives its parent")


@pytest.mark.processes
def test_a_child_started_after_its_parents_death_ends_immediately() -> None:
    ended = subprocess.run([sys.executable, "-c", _CHILD, "1"], capture_output=True, timeout=PATIENCE_S, check=False)
    assert (ended.returncode, ended.stdout) == (1, b"")
    assert b"is gone" in ended.stderr


def test_a_pid_below_one_is_rejected() -> None:
    with pytest.raises(ValueError, match="--parent-pid"):
        die_with_parent(0)


def test_without_kernel_support_a_thread_watches_the_parent(monkeypatch: pytest.MonkeyPatch) -> None:
    parents = iter([41, 41, 1])
    killed: list[tuple[int, int]] = []
    monkeypatch.setattr(parent_death, "_POLL_S", 0)
    monkeypatch.setattr(os, "getppid", lambda: next(parents))
    monkeypatch.setattr(os, "kill", lambda pid, number: killed.append((pid, number)))
    parent_death._poll(41)
    assert killed == [(os.getpid(), signal.SIGKILL)]
