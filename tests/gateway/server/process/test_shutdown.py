"""Process shutdown: requested once, forced by a second signal, and by a watchdog if a step hangs."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator

import pytest

from gateway.server.process.shutdown import LAST_STEPS_S, ProcessEnd

WAIT_S = 30.0


class Process:
    """A shutdown with a clock controlled by the test."""

    def __init__(self, drain_s: float = 60.0) -> None:
        self.now = 1000.0
        self.did: list[str] = []
        self.gone = threading.Event()
        self.end = ProcessEnd(drain_s, lambda: self.did.append("children"), exit_now=self._exit, clock=lambda: self.now)

    def _exit(self, status: int) -> None:
        self.did.append(f"exit {status}")
        self.gone.set()


@pytest.fixture
def process() -> Iterator[Process]:
    """Return a process whose watchdog ends with the test."""
    handlers = {sign: signal.getsignal(sign) for sign in (signal.SIGINT, signal.SIGTERM)}
    process = Process()
    yield process
    process.now = float("inf")
    assert not process.end.asked or process.gone.wait(WAIT_S)
    for sign, handler in handlers.items():
        signal.signal(sign, handler)


@pytest.mark.parametrize(("sign", "drain_s"), [(signal.SIGTERM, 60.0), (signal.SIGINT, 0.0)])
def test_only_sigterm_lets_requests_finish(process: Process, sign: signal.Signals, drain_s: float) -> None:
    process.end.handle_signals()
    os.kill(os.getpid(), sign)
    assert process.end.asked
    assert process.end.drain_s == drain_s
    assert process.did == []


def test_a_second_signal_ends_children_and_process_immediately(process: Process) -> None:
    process.end.handle_signals()
    os.kill(os.getpid(), signal.SIGTERM)
    os.kill(os.getpid(), signal.SIGINT)
    assert process.did == ["children", "exit 130"]


def test_a_hanging_shutdown_is_ended_and_logged_by_the_watchdog(
    process: Process, capfd: pytest.CaptureFixture[str]
) -> None:
    process.end.ask("SIGTERM")
    process.now += 60.0 + LAST_STEPS_S - 0.1
    assert not process.gone.wait(0.3)
    process.now += 0.2
    assert process.gone.wait(WAIT_S)
    assert process.did == ["children", "exit 1"]
    assert "the shutdown hung" in capfd.readouterr().err


def test_after_the_drain_the_last_steps_have_only_seconds(process: Process) -> None:
    process.end.ask("SIGTERM")
    process.end.drained()
    process.now += LAST_STEPS_S + 0.1
    assert process.gone.wait(WAIT_S)


def test_the_first_shutdown_reason_determines_status_and_drain(process: Process) -> None:
    process.end.ask("jobs ended", status=1)
    process.end.ask("SIGINT", drains=False)
    assert (process.end.status, process.end.drain_s) == (1, 60.0)
