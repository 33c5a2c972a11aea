"""The supervisor's state of one child: how to start it, and how it runs."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field


def python(module: str) -> tuple[str, ...]:
    """Return the command that runs a module by this process's interpreter."""
    return (sys.executable, "-m", module)


def parent_option() -> tuple[str, ...]:
    """Return the option that makes our programs end with this process."""
    return ("--parent-pid", str(os.getpid()))


STARTING = "starting"
RUNNING = "running"
WAITING = "waiting"
STOPPED = "stopped"


@dataclass(frozen=True, slots=True)
class ChildSpec:
    """How to start one child. It must end by itself when its parent dies (simulator.parent_death)."""

    name: str
    argv: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    """Added to the environment of this process. Secrets are passed here, never in argv, which all users can list."""
    pass_fds: tuple[int, ...] = ()
    """Descriptors that the child inherits under the same numbers."""
    standby: bool = False
    """A second process is started ahead, and receives a byte on its standard input when it is to replace the first. The
    end of that input ends it.
    """


@dataclass(frozen=True, slots=True)
class ChildStatus:
    """Current state of one child."""

    name: str
    state: str
    """starting (asked for), running, waiting (ended, starts again after a pause) or stopped."""
    pid: int | None
    starts: int
    """Number of starts; more than one: it ended by itself."""
    exit_status: int | None
    """Of its last end: an exit code, or minus the signal that killed it."""
