from __future__ import annotations

import io

import pytest

from simulator.replay import replay_progress
from simulator.replay.replay_progress import Lines, ProgressBar, progress_for
from simulator.replay.replay_summary import ReplayOutcome, SummaryCounter


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def _counter() -> SummaryCounter:
    counter = SummaryCounter()
    counter.add(ReplayOutcome(status="ok"))
    counter.add(ReplayOutcome(status="rejected", error="HTTP 429"))
    return counter


def test_a_terminal_gets_a_bar_with_the_counts() -> None:
    terminal = _Terminal()
    progress = progress_for(10, terminal)
    assert isinstance(progress, ProgressBar)
    progress.update(_counter())
    progress.close()
    assert "ok 1, rejected 1, failed 0" in terminal.getvalue()


def test_a_log_gets_periodic_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter([0.0, 1.0, 11.0, 12.0])
    monkeypatch.setattr(replay_progress.time, "monotonic", lambda: next(now))
    log = io.StringIO()
    progress = progress_for(None, log)
    assert isinstance(progress, Lines)
    for _ in range(3):
        progress.update(_counter())
    progress.close()
    assert log.getvalue() == "replay: 2/∞ requests, ok 1, rejected 1, failed 0\n"
