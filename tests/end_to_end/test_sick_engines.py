"""One engine hangs and one sleeps under traffic: both leave rotation in time, and no request is lost."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from bench.engines.sick_engines import OPTIONS, run
from bench.live.live_program import live_program

pytestmark = [pytest.mark.processes, pytest.mark.thorough]


def test_hanging_and_sleeping_engines_leave_rotation_and_no_request_is_lost(tmp_path: Path) -> None:
    with live_program(tmp_path) as program:
        program.start_engines(3, OPTIONS)
        rows = asyncio.run(run(program, ("hang", "sleep"), healthy_s=0.0, seed=1, to_the_end=False))
    hang, sleep, everything = rows
    assert hang["out_after_s"] is not None
    assert hang["back_after_s"] is not None
    assert sleep["out_after_s"] is not None
    assert everything["lost_without_first_byte"] == 0, everything["lost"]
    assert everything["broken_off"] == 0
    assert hang["others_out"] == sleep["others_out"] == []
