"""The end of the program: every step has a limit, and one that hangs is named and holds up no other."""

from __future__ import annotations

import asyncio

import pytest

from controlplane.project.processes.server import end_steps


async def _hang() -> None:
    while True:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if hung.is_set():
                raise


hung = asyncio.Event()


async def test_a_step_that_hangs_is_named_and_the_others_are_done() -> None:
    done: list[str] = []

    async def step(name: str) -> None:
        done.append(name)

    steps = {"children": step("children"), "server": _hang(), "jobs": step("jobs")}
    assert await end_steps(steps, 0.1) == ["server"]
    assert done == ["children", "jobs"]
    hung.set()


async def test_a_step_that_fails_is_logged_and_not_late(caplog: pytest.LogCaptureFixture) -> None:
    async def fail() -> None:
        raise OSError("no such process")

    assert await end_steps({"child processes": fail()}, 5.0) == []
    assert "child processes failed" in caplog.text
