"""The supervisor's view of one child: its start command and its current state."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field


def python(module: str) -> tuple[str, ...]:
    """Return the command that runs a module with this process's interpreter."""
    return (sys.executable, "-m", module)


def parent_option() -> tuple[str, ...]:
    """Return the option that makes a Headway program end when this process ends."""
    return ("--parent-pid", str(os.getpid()))


STARTING = "starting"
RUNNING = "running"
WAITING = "waiting"
STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class ChildSpec:
    """How to start one child. The child must end when its parent dies (simulator.parent_death)."""

    name: str
    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    """Variables added to this process's environment. Secrets are passed here, because all users can read argv."""
    pass_fds: tuple[int, ...] = ()
    """Descriptors that the child inherits with the same numbers."""
    standby: bool = False
    """Whether a second process is started in advance. It receives a byte on its standard input to replace the first
    process, and ends when that input ends.
    """


@dataclass(frozen=True, slots=True)
class ChildStatus:
    """Current state of one child."""

    name: str
    state: str
    """starting (requested), running, waiting (ended, restarts after a pause), or stopped."""
    pid: int | None
    starts: int
    """Number of starts. More than one means that it ended unexpectedly."""
    exit_status: int | None
    """Last exit status: an exit code, or minus the signal that killed it."""
