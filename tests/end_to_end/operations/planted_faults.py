"""Faults of a running demo, each planted from outside and removed at the end of its block."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

from controlplane.project.first_run.demo_names import SERVED_MODEL
from tests.program import ROOT, Program

CALLERS = 60
FLOODER = "flooder"
SLOW_SHARE, STARVED_SHARE = 0.9, 0.6
"""Share of the time for which a process is stopped, so that it is slow."""
STEP_S = 1.0
ENGINE = "e-03"


@dataclass(frozen=True)
class Fault:
    """One fault: how it is planted, and the kinds of cause that name it."""

    name: str
    plant: Callable[[Program], AbstractContextManager[None]]
    causes: tuple[str, ...]


def engine_pid(program: Program) -> int:
    """Return the process of the engine that the faults hit."""
    ((url,),) = program.ask("select url from controlplane_engine where name = ?", ENGINE)
    return program.engine_pid(int(url.rsplit(":", 1)[1]))


@contextmanager
def frozen_engine(program: Program) -> Iterator[None]:
    """Stop an engine's process during the block."""
    pid = engine_pid(program)
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


@contextmanager
def crashing_engine(program: Program) -> Iterator[None]:
    """Kill an engine's process whenever it runs, during the block."""

    def crash() -> None:
        with contextlib.suppress(LookupError, ProcessLookupError):
            os.kill(engine_pid(program), signal.SIGKILL)

    with _repeated(crash):
        yield


def slow_engine(program: Program) -> AbstractContextManager[None]:
    """Let an engine's process run for a small part of the time, during the block."""
    return _slowed(engine_pid(program), SLOW_SHARE)


def starved_gateway(program: Program) -> AbstractContextManager[None]:
    """Let the gateway's process run for a part of the time, during the block."""
    pid = program.part_pid("gateway")
    assert pid is not None, "no gateway serves"
    return _slowed(pid, STARVED_SHARE)


@contextmanager
def flood(program: Program) -> Iterator[None]:
    """Send requests of another tenant with CALLERS clients during the block."""
    key, stop = _flooders_key(program), threading.Event()
    callers = [
        threading.Thread(target=_call, args=(program.url, key, stop, row), daemon=True) for row in range(CALLERS)
    ]
    for caller in callers:
        caller.start()
    try:
        yield
    finally:
        stop.set()
        for caller in callers:
            caller.join()


FAULTS = (
    Fault("frozen engine", frozen_engine, ("engine_frozen",)),
    Fault("crashed engine", crashing_engine, ("engine_crashed",)),
    Fault("slow engine", slow_engine, ("engine_slow",)),
    Fault("flood of one tenant", flood, ("tenant_flood",)),
    Fault("starved gateway", starved_gateway, ("gateway_starved",)),
)


@contextmanager
def _slowed(pid: int, stopped_share: float) -> Iterator[None]:
    def pause() -> None:
        os.kill(pid, signal.SIGSTOP)
        time.sleep(STEP_S * stopped_share)
        os.kill(pid, signal.SIGCONT)

    with _repeated(pause, STEP_S * (1.0 - stopped_share)):
        yield


@contextmanager
def _repeated(act: Callable[[], None], pause_s: float = 0.2) -> Iterator[None]:
    stop = threading.Event()

    def repeat() -> None:
        while not stop.is_set():
            act()
            stop.wait(pause_s)

    thread = threading.Thread(target=repeat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


def _flooders_key(program: Program) -> str:
    """Return the key of a tenant without earlier requests."""
    script = (
        "from controlplane.access.api_keys import create_api_key\n"
        "from controlplane.fleet.topology import create_tenant\n"
        "from controlplane.platform.actor import program\n"
        f"actor = program('walk'); tenant = create_tenant({FLOODER!r}, 'Flooder', actor=actor)\n"
        "print('KEY', create_api_key(tenant, 'flood', actor=actor)[1])"
    )
    environment = {**os.environ, "HEADWAY_STATE_DIR": str(program.state_dir)}
    command = [sys.executable, "manage.py", "shell", "-c", script]
    text = subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True, text=True).stdout
    return next(line.removeprefix("KEY ") for line in text.splitlines() if line.startswith("KEY "))


def _call(url: str, key: str, stop: threading.Event, caller: int) -> None:
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    for turn in range(1_000_000):
        if stop.is_set():
            return
        body = {"model": SERVED_MODEL, "prompt": f"{caller} {turn} " + "word " * 2_000, "max_tokens": 16}
        request = urllib.request.Request(f"{url}/v1/completions", json.dumps(body).encode(), headers)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                answer.read()
        except (urllib.error.URLError, TimeoutError, ConnectionError):
            stop.wait(0.2)
