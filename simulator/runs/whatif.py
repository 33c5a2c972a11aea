"""What-if: the results of a policy on recorded requests, simulated in a child process.

A simulation takes seconds of pure CPU work; in a child process, it does not block the caller. Caller and child exchange
only JSON lines.
"""

from __future__ import annotations

import os
import selectors
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from routing.values.prepared_struct import prepared
from simulator.runs.run_report import RunReport
from simulator.runs.run_task import RunTask


class WhatIfProgress(msgspec.Struct, frozen=True, tag="progress"):
    """The share of requests that have arrived, 0..1."""

    share: float


class Failure(msgspec.Struct, frozen=True, tag="failure"):
    """Why the task cannot be run."""

    reason: str


class WhatIfDone(msgspec.Struct, frozen=True, tag="done"):
    """The report of a finished run."""

    report: RunReport


Message = WhatIfProgress | Failure | WhatIfDone


_POLL_S = 0.1
_ROOT = Path(__file__).resolve().parents[2]


class WhatIfError(RuntimeError):
    """The what-if did not finish; the message states why."""


class WhatIfCancelledError(WhatIfError):
    """The caller cancelled the what-if."""


def run_in_child(
    task: RunTask,
    *,
    max_s: float = 900.0,
    on_progress: Callable[[float], None] | None = None,
    cancelled: Callable[[], bool] | None = None,
) -> RunReport:
    """Run the task in a child process and return its report.

    `on_progress` receives the share of requests that have arrived, 0..1. `cancelled` is called ten times a second.
    Raises WhatIfCancelledError. Raises WhatIfError if the recording or policy is invalid, if the child dies, or after
    `max_s` seconds. The child dies with the calling thread, which waits for it here.
    """
    command = [sys.executable, "-m", "simulator.runs.whatif_child", "--parent-pid", str(os.getpid())]
    # Nothing here reads stderr, and a pipe that is full would block the child.
    child = subprocess.Popen(  # noqa: S603  # our own interpreter and module
        command, cwd=_ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    try:
        return _Conversation(child, on_progress, cancelled, time.monotonic() + max_s).run(msgspec.json.encode(task))
    finally:
        # Harmless after its end; before it, the caller has given up.
        child.kill()
        child.wait()
        for pipe in (child.stdin, child.stdout):
            if pipe is not None:
                pipe.close()


class _Conversation:
    """Sends a task to the child and reads lines until its report. Mutable state: `_buffer`, an incomplete line."""

    def __init__(
        self,
        child: subprocess.Popen[bytes],
        on_progress: Callable[[float], None] | None,
        cancelled: Callable[[], bool] | None,
        until: float,
    ) -> None:
        self._child = child
        self._on_progress = on_progress
        self._cancelled = cancelled
        self._until = until
        self._buffer = b""
        self._decoder: msgspec.json.Decoder[Message] = msgspec.json.Decoder(
            prepared(WhatIfProgress | Failure | WhatIfDone)
        )

    def run(self, task: bytes) -> RunReport:
        """Return the child's report."""
        stdin, stdout = self._child.stdin, self._child.stdout
        if stdin is None or stdout is None:
            raise WhatIfError("the child has no pipes")
        try:
            stdin.write(task)
            # The child reads its task up to the end of the pipe.
            stdin.close()
        except BrokenPipeError as error:
            raise WhatIfError("the child process ended before it took its task") from error
        with selectors.DefaultSelector() as selector:
            selector.register(stdout, selectors.EVENT_READ)
            while True:
                if self._cancelled is not None and self._cancelled():
                    raise WhatIfCancelledError("the what-if was cancelled")
                if time.monotonic() > self._until:
                    raise WhatIfError("the what-if took too long and was ended; take fewer requests")
                if selector.select(_POLL_S):
                    report = self._read(os.read(stdout.fileno(), 65_536))
                    if report is not None:
                        return report

    def _read(self, data: bytes) -> RunReport | None:
        if not data:
            raise WhatIfError(f"the child process ended with status {self._child.wait()} and no report")
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        for line in lines:
            message = self._decoder.decode(line)
            if isinstance(message, Failure):
                raise WhatIfError(message.reason)
            if isinstance(message, WhatIfProgress):
                if self._on_progress is not None:
                    self._on_progress(message.share)
            else:
                return message.report
        return None
