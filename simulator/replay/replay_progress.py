"""Shows the progress of a replay: a bar on a terminal, otherwise a line every ten seconds."""

from __future__ import annotations

import sys
import time
from typing import Protocol, TextIO

from tqdm import tqdm

from simulator.replay.replay_summary import SummaryCounter

_LINE_EVERY_S = 10.0


class ReplayProgress(Protocol):
    """Receives the counts after each finished request; `close` is called last."""

    def update(self, counter: SummaryCounter) -> None:
        """Show the counts after another request has ended."""

    def close(self) -> None:
        """End the display."""


class Silent:
    """Shows nothing, for callers that use the replay as a library."""

    def update(self, counter: SummaryCounter) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""


class ProgressBar:
    """A tqdm bar; `total` is None if the replay loops."""

    def __init__(self, total: int | None, stream: TextIO) -> None:
        self._bar = tqdm(total=total, unit="req", file=stream, dynamic_ncols=True)

    def update(self, counter: SummaryCounter) -> None:
        """Move the bar and show the counts."""
        # The update below draws the bar; once is enough.
        self._bar.set_postfix_str(_counts(counter), refresh=False)
        self._bar.update()

    def close(self) -> None:
        """Close the bar in its last state."""
        self._bar.close()


class Lines:
    """Plain lines for logs."""

    def __init__(self, total: int | None, stream: TextIO) -> None:
        self._total = "∞" if total is None else str(total)
        self._stream = stream
        self._next_s = time.monotonic() + _LINE_EVERY_S

    def update(self, counter: SummaryCounter) -> None:
        """Write a line if the last one was written long enough ago."""
        now = time.monotonic()
        if now >= self._next_s:
            self._next_s = now + _LINE_EVERY_S
            self._stream.write(f"replay: {counter.done}/{self._total} requests, {_counts(counter)}\n")
            self._stream.flush()

    def close(self) -> None:
        """Do nothing."""


def progress_for(total: int | None, stream: TextIO | None = None) -> ReplayProgress:
    """Return a bar if `stream` (stderr by default) is a terminal, otherwise lines."""
    stream = sys.stderr if stream is None else stream
    return ProgressBar(total, stream) if stream.isatty() else Lines(total, stream)


def _counts(counter: SummaryCounter) -> str:
    counts = counter.counts
    return f"ok {counts['ok']}, rejected {counts['rejected']}, failed {counts['failed']}"
