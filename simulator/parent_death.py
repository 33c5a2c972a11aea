"""Ends this process when its parent dies, so that a killed program leaves no orphan processes."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time

_PR_SET_PDEATHSIG = 1
_POLL_S = 1.0


def die_with_parent(parent_pid: int) -> None:
    """Arrange for SIGKILL when process `parent_pid` ends; exits at once with status 1 if it is already gone.

    On Linux, the kernel sends the signal (prctl PR_SET_PDEATHSIG); on other systems, a thread checks once a second. The
    kernel sends the signal when the *thread* that started this process ends: start children from a thread that lives as
    long as the program. Raises ValueError on a pid that cannot be a parent.
    """
    if parent_pid < 1:
        raise ValueError(f"--parent-pid must be a process id, not {parent_pid}")
    if not _ask_kernel():
        threading.Thread(target=_poll, args=(parent_pid,), name="parent-death", daemon=True).start()
    _exit_without(parent_pid)


def die_with_parent_after_exec(parent_pid: int) -> None:
    """Do the same for a process that is about to become another program by `exec`, which ends its threads.

    On other systems than Linux, a second process in this one's process group checks once a second.
    """
    if not _ask_kernel():
        program = os.getpid()
        if os.fork() == 0:
            _watch(program, parent_pid)
    _exit_without(parent_pid)


def _exit_without(parent_pid: int) -> None:
    # Checked last: a parent that died before the request sends no signal.
    if os.getppid() != parent_pid:
        raise SystemExit(f"parent process {parent_pid} is gone")


def _watch(program: int, parent_pid: int) -> None:
    """Kill `program`, our parent, once its parent is gone; end with it."""
    while os.getppid() == program:
        try:
            os.kill(parent_pid, 0)
        except ProcessLookupError:
            os.kill(program, signal.SIGKILL)
            break
        time.sleep(_POLL_S)
    os._exit(0)


def _ask_kernel() -> bool:
    if not sys.platform.startswith("linux"):
        return False
    libc = ctypes.CDLL(None, use_errno=True)
    return bool(libc.prctl(_PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0) == 0)


def _poll(parent_pid: int) -> None:
    while os.getppid() == parent_pid:
        time.sleep(_POLL_S)
    os.kill(os.getpid(), signal.SIGKILL)
