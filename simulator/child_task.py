"""A task that a child process computes: seconds of pure CPU work there do not block the caller.

Caller and child exchange only JSON: the task up to the end of the child's stdin, and lines back.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import selectors
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from routing.values.prepared_struct import prepared
from simulator.parent_death import die_with_parent

NICE = 10
"""Nice level: a task yields the CPU to live processes on the same machine."""
_POLL_S = 0.1
_STEPS = 100
"""Number of progress messages at most."""
_ROOT = Path(__file__).resolve().parents[1]


class ChildProgress(msgspec.Struct, frozen=True, tag="progress"):
    """The completed share, 0..1."""

    share: float


class ChildFailure(msgspec.Struct, frozen=True, tag="failure"):
    """Why the task has no result."""

    reason: str


class ChildResult(msgspec.Struct, frozen=True, tag="result"):
    """The result of the task."""

    result: msgspec.Raw


Message = ChildProgress | ChildFailure | ChildResult
OnShare = Callable[[float], None]


class ChildTaskError(RuntimeError):
    """The task has no result; the message states why."""


class ChildCancelledError(ChildTaskError):
    """The caller cancelled the task."""


def run_child(
    module: str,
    task: bytes,
    *,
    max_s: float = 900.0,
    on_progress: OnShare | None = None,
    cancelled: Callable[[], bool] | None = None,
) -> bytes:
    """Give the task to `python -m module`, which calls `serve_task`, and return its result as JSON.

    `on_progress` receives the completed share, 0..1. `cancelled` is called ten times a second. Raises
    ChildCancelledError. Raises ChildTaskError if the task fails, if the child dies, or after `max_s` seconds. The child
    dies with the calling thread, which waits for it here.
    """
    command, until = [sys.executable, "-m", module, "--parent-pid", str(os.getpid())], time.monotonic() + max_s
    # Nothing here reads stderr, and a pipe that is full would block the child.
    with subprocess.Popen(  # noqa: S603  # our own interpreter and module
        command, cwd=_ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as child:
        try:
            _give(child, task)
            for message in _messages(child):
                if cancelled is not None and cancelled():
                    raise ChildCancelledError("it was cancelled")
                if time.monotonic() > until:
                    raise ChildTaskError("it took too long and was ended")
                if isinstance(message, ChildFailure):
                    raise ChildTaskError(message.reason)
                if isinstance(message, ChildResult):
                    return bytes(message.result)
                if message is not None and on_progress is not None:
                    on_progress(message.share)
        finally:
            # Harmless after its end; before it, the caller has given up.
            child.kill()
    raise ChildTaskError(f"the child process ended with status {child.returncode} and no result")


def _give(child: subprocess.Popen[bytes], task: bytes) -> None:
    """Write the task up to the end of the pipe, to which the child reads."""
    if child.stdin is not None:
        # A child that has ended takes no task; its messages end, too.
        with contextlib.suppress(BrokenPipeError), child.stdin as pipe:
            pipe.write(task)


def _messages(child: subprocess.Popen[bytes]) -> Iterator[Message | None]:
    """Yield the child's messages up to its end, and None whenever there was none for _POLL_S."""
    decoder, rest = msgspec.json.Decoder[Message](prepared(Message)), b""
    with selectors.DefaultSelector() as selector:
        if child.stdout is not None:
            selector.register(child.stdout, selectors.EVENT_READ)
        while True:
            yield None
            for key, _ in selector.select(_POLL_S):
                if not (data := os.read(key.fd, 65_536)):
                    return
                *lines, rest = (rest + data).split(b"\n")
                yield from map(decoder.decode, lines)


def serve_task(
    argv: list[str], compute: Callable[[bytes, OnShare], object], expected: tuple[type[Exception], ...] = ()
) -> int:
    """Compute the task from stdin in a child process, and return the exit status.

    `compute` may report its completed share. Errors other than the expected ones are reported with their class.
    """
    parser = argparse.ArgumentParser()
    parser.add_argument("--parent-pid", type=int, default=None, help="exit when this process ends")
    parent_pid = parser.parse_args(argv).parent_pid
    if parent_pid is not None:
        die_with_parent(parent_pid)
        os.nice(NICE)
    reported = 0
    named: tuple[type[Exception], ...] = (*expected, msgspec.DecodeError)

    def progress(share: float) -> None:
        nonlocal reported
        if int(share * _STEPS) > reported:
            reported = int(share * _STEPS)
            _send(ChildProgress(min(share, 1.0)))

    try:
        _send(ChildResult(msgspec.Raw(msgspec.json.encode(compute(sys.stdin.buffer.read(), progress)))))
    except named as error:
        _send(ChildFailure(str(error)))
    except Exception as error:  # noqa: BLE001  # the edge of this process: the caller must receive it
        _send(ChildFailure(f"{type(error).__name__}: {error}"))
        return 1
    return 0


def _send(message: Message) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(message) + b"\n")
    sys.stdout.buffer.flush()
