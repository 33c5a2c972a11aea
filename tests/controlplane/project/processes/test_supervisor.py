"""Real child processes are restarted, stopped in order, and never orphaned."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from controlplane.project.processes import supervisor as supervising
from controlplane.project.processes.child_process import RUNNING, STOPPED, WAITING, ChildSpec, ChildStatus
from controlplane.project.processes.supervisor import ChildLog, Supervisor
from tests.patience import until

pytestmark = pytest.mark.processes
ROOT = Path(__file__).resolve().parents[4]
SLEEPER = "import time; print('awake', flush=True); time.sleep(600)"
STUBBORN = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('awake', flush=True); time.sleep(600)"
)


def child(name: str, program: str = SLEEPER, **env: str) -> ChildSpec:
    return ChildSpec(name, (sys.executable, "-c", program), env=env)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def status(supervisor: Supervisor, name: str) -> ChildStatus:
    return next(status for status in supervisor.statuses() if status.name == name)


async def running(supervisor: Supervisor, name: str, log_dir: Path, starts: int = 1) -> int:
    """Wait until the n-th run of the child has printed its line, and return its PID."""
    log = log_dir / f"{name}.log"
    await until(lambda: log.exists() and log.read_text().count("awake") >= starts)
    await until(lambda: status(supervisor, name).state == RUNNING)
    pid = status(supervisor, name).pid
    assert pid is not None
    return pid


async def test_killed_child_is_restarted_and_its_exit_is_reported(tmp_path: Path) -> None:
    ends: list[tuple[str, int]] = []
    supervisor = Supervisor(tmp_path, lambda name, status: ends.append((name, status)))
    supervisor.start([child("a")])
    try:
        first = await running(supervisor, "a", tmp_path)
        os.kill(first, signal.SIGKILL)
        second = await running(supervisor, "a", tmp_path, starts=2)
        assert second != first
        assert status(supervisor, "a").starts == 2
        assert status(supervisor, "a").exit_status == -signal.SIGKILL
    finally:
        await supervisor.stop()
    # The stop is no end of its own.
    assert ends == [("a", -signal.SIGKILL)]


async def test_children_share_the_session_and_have_separate_process_groups(tmp_path: Path) -> None:
    """Priorities apply within one session; a terminal interrupts one group."""
    supervisor = Supervisor(tmp_path)
    supervisor.start([child("a"), child("b")])
    pids = [await running(supervisor, name, tmp_path) for name in ("a", "b")]
    assert [os.getsid(pid) for pid in pids] == [os.getsid(0)] * 2
    assert [os.getpgid(pid) for pid in pids] == pids
    await supervisor.stop()


async def test_stop_ends_all_children_even_those_that_ignore_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("controlplane.project.processes.supervisor.TERM_S", 0.3)
    supervisor = Supervisor(tmp_path)
    supervisor.start([child("a"), child("b", STUBBORN)])
    pids = [await running(supervisor, name, tmp_path) for name in "ab"]
    await supervisor.stop()
    assert not any(alive(pid) for pid in pids)
    assert {status.state for status in supervisor.statuses()} == {STOPPED}
    assert status(supervisor, "b").exit_status == -signal.SIGKILL


async def test_one_child_can_be_stopped_alone(tmp_path: Path) -> None:
    supervisor = Supervisor(tmp_path)
    supervisor.start([child("a"), child("b")])
    try:
        pid_a, pid_b = [await running(supervisor, name, tmp_path) for name in "ab"]
        await supervisor.stop(["a"])
        assert not alive(pid_a)
        assert alive(pid_b)
    finally:
        await supervisor.stop()


async def test_child_that_cannot_start_is_delayed_and_does_not_affect_others(tmp_path: Path) -> None:
    supervisor = Supervisor(tmp_path)
    supervisor.start([ChildSpec("broken", ("/nonexistent/program",)), child("a")])
    try:
        await running(supervisor, "a", tmp_path)
        await until(lambda: status(supervisor, "broken").state == WAITING)
        assert status(supervisor, "broken").starts == 0
    finally:
        await supervisor.stop()


async def test_duplicate_name_is_rejected(tmp_path: Path) -> None:
    supervisor = Supervisor(tmp_path)
    supervisor.start([child("a")])
    try:
        with pytest.raises(ValueError, match="named a"):
            supervisor.start([child("a")])
    finally:
        await supervisor.stop()


async def test_child_gets_its_environment(tmp_path: Path) -> None:
    supervisor = Supervisor(tmp_path)
    supervisor.start(
        [
            child(
                "a",
                "import os, time; print('awake', os.environ['FLAVOUR'], flush=True); time.sleep(600)",
                FLAVOUR="plum",
            )
        ]
    )
    try:
        await running(supervisor, "a", tmp_path)
        assert "plum" in (tmp_path / "a.log").read_text()
    finally:
        await supervisor.stop()


WAITING_CHILD = "import sys, time; sys.stdin.read(1) or sys.exit(7); print('awake', flush=True); time.sleep(600)"


def children() -> set[int]:
    pids = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text().split()
    return {pid for pid in map(int, pids) if alive(pid)}


@pytest.fixture
async def standby_pids(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Callable[[int], Any]]:
    """Return a function that waits until the child's n-th run has a standby, and returns both PIDs."""
    monkeypatch.setattr("controlplane.project.processes.supervisor.PROVEN_S", 0.05)
    monkeypatch.setattr("controlplane.project.processes.supervisor.STANDBY_S", 0.05)
    before, supervisor = children(), Supervisor(tmp_path)
    supervisor.start([ChildSpec("a", (sys.executable, "-c", WAITING_CHILD), standby=True)])

    async def both(starts: int) -> tuple[int, int]:
        first = await running(supervisor, "a", tmp_path, starts)
        await until(lambda: len(children() - before) == 2)
        (other,) = children() - before - {first}
        return first, other

    yield both
    await supervisor.stop()
    assert children() == before


async def test_standby_replaces_a_killed_child_and_gets_its_own_standby(
    tmp_path: Path, standby_pids: Callable[[int], Any]
) -> None:
    first, standby = await standby_pids(1)
    assert (tmp_path / "a.log").read_text().count("awake") == 1, "it waits"
    os.kill(first, signal.SIGKILL)
    assert (await standby_pids(2))[0] == standby


async def test_standby_replaces_a_child_that_was_killed_soon_after_its_start(
    tmp_path: Path, standby_pids: Callable[[int], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("controlplane.project.processes.supervisor.PROVEN_S", 3600.0)
    monkeypatch.setattr("controlplane.project.processes.supervisor.FIRST_PAUSE_S", 3600.0)
    first, standby = await standby_pids(1)
    os.kill(first, signal.SIGKILL)
    assert (await standby_pids(2))[0] == standby, "without a pause"


async def test_crashed_standby_is_replaced_and_the_child_continues(standby_pids: Callable[[int], Any]) -> None:
    first, standby = await standby_pids(1)
    os.kill(standby, signal.SIGKILL)
    await until(lambda: not alive(standby))
    again, other = await standby_pids(1)
    assert (again, other != standby) == (first, True)


PARENT = """
import asyncio, os, sys
from pathlib import Path
from controlplane.project.processes.child_process import ChildSpec
from controlplane.project.processes.supervisor import Supervisor

CHILD = '''
import os, sys, time
from simulator.parent_death import die_with_parent
die_with_parent(int(sys.argv[1]))
print("awake", os.getpid(), flush=True)
time.sleep(600)
'''

async def main():
    supervisor = Supervisor(Path(sys.argv[1]))
    supervisor.start(ChildSpec(name, (sys.executable, "-c", CHILD, str(os.getpid()))) for name in "ab")
    await asyncio.sleep(600)

asyncio.run(main())
"""


async def test_killed_parent_leaves_no_orphan(tmp_path: Path) -> None:
    parent = subprocess.Popen([sys.executable, "-c", PARENT, str(tmp_path)], cwd=ROOT)
    logs = [tmp_path / f"{name}.log" for name in "ab"]
    await until(lambda: all(log.exists() and "awake" in log.read_text() for log in logs))
    pids = [int(log.read_text().split()[1]) for log in logs]
    assert all(alive(pid) for pid in pids)
    parent.kill()
    parent.wait()
    await until(lambda: not any(alive(pid) for pid in pids))


def test_long_log_is_rotated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervising, "MAX_BYTES", 10)
    log = ChildLog(tmp_path / "a.log")
    descriptor = log.open()
    os.write(descriptor, b"a long first line\n")
    log.trim()
    os.write(descriptor, b"next\n")
    os.close(descriptor)
    assert (tmp_path / "a.log").read_text() == "next\n"
    assert (tmp_path / "a.log.1").read_text() == "a long first line\n"


async def test_kill_ends_all_children_at_once_even_unresponsive_ones(tmp_path: Path) -> None:
    supervisor = Supervisor(tmp_path)
    supervisor.start([child("a"), child("b", STUBBORN)])
    try:
        pids = [await running(supervisor, name, tmp_path) for name in ("a", "b")]
        supervisor.kill()
        await until(lambda: not any(alive(pid) for pid in pids))
    finally:
        await supervisor.stop()


async def test_child_gets_its_own_stop_signal_and_timeout(tmp_path: Path) -> None:
    slow = (
        "import signal, sys, time\n"
        "def end(*_):\n    time.sleep(0.5); print('done', flush=True); sys.exit(3)\n"
        "signal.signal(signal.SIGINT, end); print('awake', flush=True); time.sleep(600)"
    )
    supervisor = Supervisor(tmp_path)
    supervisor.start([child("slow", slow), child("other")])
    await running(supervisor, "slow", tmp_path)
    other = await running(supervisor, "other", tmp_path)
    await supervisor.stop(["slow"], sign=signal.SIGINT, patience_s=20.0)
    assert (status(supervisor, "slow").state, status(supervisor, "slow").exit_status) == (STOPPED, 3)
    assert "done" in (tmp_path / "slow.log").read_text()
    assert alive(other)
    await supervisor.stop()
    assert not alive(other)


async def test_child_inherits_the_given_file_descriptors(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    program = f"import os, time; os.write({writing}, b'from the child'); print('awake', flush=True); time.sleep(600)"
    supervisor = Supervisor(tmp_path)
    supervisor.start([ChildSpec("a", (sys.executable, "-c", program), pass_fds=(writing,))])
    try:
        await running(supervisor, "a", tmp_path)
        assert os.read(reading, 100) == b"from the child"
    finally:
        await supervisor.stop()
        os.close(reading)
        os.close(writing)
