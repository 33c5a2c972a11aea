"""How children stand, as it crosses the bus."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import msgspec
import pytest

from controlplane.child_process import RUNNING, STOPPED, ChildSpec, ChildStatus, decode_statuses, encode_statuses
from controlplane.supervisor import Supervisor


def test_statuses_survive_the_bus() -> None:
    statuses = (
        ChildStatus("e-01", RUNNING, 7, (8100, 8101), 2, -9, 1.5),
        ChildStatus("replay", STOPPED, None, (), 1, None, 2.0),
    )
    assert decode_statuses(encode_statuses(statuses)) == statuses


def test_garbage_is_refused() -> None:
    with pytest.raises(msgspec.DecodeError):
        decode_statuses(b"\x93\x01")


async def test_each_change_is_told_with_all_children(tmp_path: Path) -> None:
    heard: list[dict[str, str]] = []
    supervisor = Supervisor(tmp_path, lambda statuses: heard.append({each.name: each.state for each in statuses}))
    sleeper = (sys.executable, "-c", "import time; time.sleep(600)")
    supervisor.start([ChildSpec("a", sleeper, ports=(1, 2)), ChildSpec("b", sleeper)])
    while {"a": RUNNING, "b": RUNNING} not in heard:
        await asyncio.sleep(0.02)
    await supervisor.stop()
    assert heard[-1] == {"a": STOPPED, "b": STOPPED}
