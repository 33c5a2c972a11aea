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
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

from controlplane.project.first_run.demo_names import SERVED_MODEL
from controlplane.project.first_run.demo_regions import NAMES, ONE_WAY_MS
from tests.patience import wait_until
from tests.program import ROOT, Program, processes

CALLERS, FLOOD_WORDS = 120, 8_000
FLOODER = "flooder"
STARVED_SHARE = 0.6
"""Share of the time for which the gateway's process is stopped."""
STEP_S = 1.0
CUT_REGION = "eu"


@dataclass(frozen=True)
class Fault:
    """One fault: how it is planted, and the kinds of cause that name it."""

    name: str
    plant: Callable[[Program], AbstractContextManager[None]]
    causes: tuple[str, ...]
    options: tuple[str, ...] = ()
    """Options of the program in which it is planted."""


def busiest_engine(program: Program) -> str:
    """Return the engine with the most requests of the last minute: a fault of an idle one hits no request."""
    ((name,),) = program.ask(
        "select engine from controlplane_decisionindex where at_ms > ? group by 1 order by count(*) desc limit 1",
        (time.time() - 60) * 1000,
    )
    return str(name)


def engine_pid(program: Program, name: str) -> int:
    """Return the process of an engine."""
    ((url,),) = program.ask("select url from controlplane_engine where name = ?", name)
    return program.engine_pid(int(url.rsplit(":", 1)[1]))


@contextmanager
def frozen_engine(program: Program) -> Iterator[None]:
    """Stop an engine's process during the block."""
    pid = engine_pid(program, busiest_engine(program))
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


@contextmanager
def crashing_engine(program: Program) -> Iterator[None]:
    """Kill an engine's process whenever it runs, during the block."""
    name = busiest_engine(program)

    def crash() -> None:
        with contextlib.suppress(LookupError, ProcessLookupError):
            os.kill(engine_pid(program, name), signal.SIGKILL)

    with _repeated(crash):
        yield


@contextmanager
def _engine_fault(program: Program, fault: str, names: str = "%") -> Iterator[None]:
    """Set a fault of the engines whose names match, during the block."""
    urls = [url for (url,) in program.ask("select url from controlplane_engine where name like ?", names)]
    try:
        for url in urls:
            wait_until(lambda url=url: _set_fault(url, fault), f"{url} does not answer")
        yield
    finally:
        for url in urls:
            _set_fault(url, "")


def _set_fault(url: str, fault: str) -> bool:
    """Set an engine's fault; return False if it does not answer, because it is being restarted."""
    try:
        _post(f"{url}/fault", {"fault": fault})
    except urllib.error.URLError:
        return False
    return True


def slow_engine(program: Program) -> AbstractContextManager[None]:
    """Let an engine take many times as long for everything, during the block."""
    return _engine_fault(program, "crawl", busiest_engine(program))


def other_template(program: Program) -> AbstractContextManager[None]:
    """Let all engines render chats with another template, during the block."""
    return _engine_fault(program, "template")


def eviction_wave(program: Program) -> AbstractContextManager[None]:
    """Let blocks of no request take the free KV memory of all engines each second, during the block."""
    urls = [url for (url,) in program.ask("select url from controlplane_engine")]

    def evict() -> None:
        for url in urls:
            _set_fault(url, "evict")

    return _repeated(evict, STEP_S)


def _post(url: str, body: object) -> None:
    content = json.dumps(body).encode()
    request = urllib.request.Request(url, content, {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        answer.read()


def starved_gateway(program: Program) -> AbstractContextManager[None]:
    """Let the gateway's process run for a part of the time, during the block."""
    pid = program.part_pid("gateway")
    assert pid is not None, "no gateway serves"
    return _slowed(pid, STARVED_SHARE)


def flood(program: Program) -> AbstractContextManager[None]:
    """Send requests of another tenant with CALLERS clients during the block."""
    key = _flooders_key(program)
    return _running(_call, [(program.url, key, row) for row in range(CALLERS)])


@contextmanager
def region_cut_off(program: Program) -> Iterator[None]:
    """Stop the proxies of all links of a region during the block."""
    delays = {f"/{delay_ms}" for pair, delay_ms in ONE_WAY_MS.items() if CUT_REGION in pair}
    pids = [
        pid
        for pid, words in processes()
        if "simulator.fault_proxy" in words and str(program.process.pid) in words
        if any(word.endswith(tuple(delays)) for word in words)
    ]
    assert len(pids) == len(NAMES) - 1, pids
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


FAULTS = (
    Fault("frozen engine", frozen_engine, ("engine_frozen",)),
    Fault("crashed engine", crashing_engine, ("engine_crashed",)),
    Fault("slow engine", slow_engine, ("engine_slow",)),
    Fault("flood of one tenant", flood, ("tenant_flood",)),
    Fault("starved gateway", starved_gateway, ("gateway_starved",)),
    Fault("eviction wave", eviction_wave, ("eviction_wave",)),
    Fault("other chat template", other_template, ("template_changed",)),
    Fault("region cut off", region_cut_off, ("region_cut_off",), ("--regions", "3")),
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
def _running(work: Callable[..., None], calls: Iterable[tuple[Any, ...]]) -> Iterator[None]:
    """Run `work(stop, …)` in a thread for each call until the block ends, which sets `stop`."""
    stop = threading.Event()
    threads = [threading.Thread(target=work, args=(stop, *call), daemon=True) for call in calls]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def _repeated(act: Callable[[], None], pause_s: float = 0.2) -> AbstractContextManager[None]:
    return _running(_repeat, [(act, pause_s)])


def _repeat(stop: threading.Event, act: Callable[[], None], pause_s: float) -> None:
    while not stop.is_set():
        act()
        stop.wait(pause_s)


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


def _call(stop: threading.Event, url: str, key: str, caller: int) -> None:
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    for turn in range(1_000_000):
        if stop.is_set():
            return
        body = {"model": SERVED_MODEL, "prompt": f"{caller} {turn} " + "word " * FLOOD_WORDS, "max_tokens": 16}
        request = urllib.request.Request(f"{url}/v1/completions", json.dumps(body).encode(), headers)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                answer.read()
        except (urllib.error.URLError, TimeoutError, ConnectionError):
            stop.wait(0.2)
