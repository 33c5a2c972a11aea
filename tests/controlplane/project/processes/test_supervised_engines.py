"""Engine processes follow the topology."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from django.db import DatabaseError

from controlplane.project.processes.child_process import ChildSpec
from controlplane.project.processes.serving import SupervisedEngines
from controlplane.project.processes.supervisor import Supervisor
from gateway.bus.bus import InProcessBus
from tests.patience import until

CHILD = "import ctypes, signal, sys, time; ctypes.CDLL(None).prctl(1, signal.SIGKILL); time.sleep(60)"


def child(name: str, role: str = "mixed") -> ChildSpec:
    return ChildSpec(name, (sys.executable, "-c", CHILD, role))


async def running(supervisor: Supervisor, *names: str) -> dict[str, int | None]:
    await until(lambda: {status.name for status in supervisor.statuses() if status.state == "running"} == set(names))
    return {status.name: status.pid for status in supervisor.statuses()}


async def test_processes_start_stop_and_restart_with_the_topology(tmp_path: Path) -> None:
    supervisor = Supervisor(tmp_path)
    wanted = [child("a"), child("b")]
    engines = SupervisedEngines(supervisor, lambda: wanted)
    supervisor.start([child("replay")])
    await engines.follow()
    before = await running(supervisor, "a", "b", "replay")
    await engines.follow()
    wanted = [child("b", "decode"), child("c")]
    await engines.follow()
    after = await running(supervisor, "b", "c", "replay")
    assert after["replay"] == before["replay"]
    assert after["b"] != before["b"]
    pid = before["a"]
    assert pid is not None
    assert not Path(f"/proc/{pid}").exists() or os.getpgid(pid) != pid
    await supervisor.stop()


async def test_database_outage_changes_nothing_and_a_snapshot_triggers_an_update(tmp_path: Path) -> None:
    supervisor, bus = Supervisor(tmp_path), InProcessBus()
    away, reads = False, 0

    def read() -> list[ChildSpec]:
        nonlocal reads
        reads += 1
        if away:
            raise DatabaseError("gone")
        return [child("a")]

    engines = SupervisedEngines(supervisor, read)
    following = asyncio.create_task(engines.run(bus, "snapshot"))
    await running(supervisor, "a")
    away, seen = True, reads
    bus.publish("snapshot", b"1")
    await until(lambda: reads != seen)
    await running(supervisor, "a")
    following.cancel()
    await asyncio.gather(following, return_exceptions=True)
    await supervisor.stop()
