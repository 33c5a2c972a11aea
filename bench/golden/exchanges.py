"""Requests and answers exchanged with the whole program from outside: gateway, API, and pages.

One pool has one simulated engine, so that every decision has one possible outcome.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from bench.golden.asker import Asker
from bench.golden.questions import (
    CHAT,
    MODEL,
    V1,
    ask_advisories,
    ask_api,
    ask_gateway,
    ask_pages,
    ask_proxy,
    ask_samples,
    ask_switches,
    ask_trials,
)
from bench.golden.surface import ROOT, environment

PORTS_FROM = 18_450
START_S = 120.0


def exchanges(scratch: Path, ports_from: int = PORTS_FROM) -> list[dict[str, Any]]:
    """Return all requests with their answers."""
    state = scratch / "program"
    with ExitStack() as running:
        running.enter_context(_process(state, "simengine", "--port", str(ports_from + 1), "--served-model-name", MODEL,
            "--block-size", "16", "--time-scale", "50", "--seed", "7"))  # fmt: skip
        running.enter_context(_process(state, "up", "--no-demo", "--port", str(ports_from)))
        asker = Asker(ports_from)
        # The gateway is a process of its own, which answers before web and API do.
        _until(lambda: asker.ask("GET", "/live")[0] == 200 and asker.ask("GET", "/login")[0] == 200)
        for role in ("viewer", "operator", "admin"):
            scopes = ("infer", "route", "manage") if role == "admin" else ("manage",)
            asker.keys[role] = _key(state, "--all-pools", "--role", role, "--scopes", *scopes)
        asker.keys["infer"] = _key(state, "--scopes", "infer")
        ask_api(asker, f"http://127.0.0.1:{ports_from + 1}")
        _until(lambda: asker.ask("GET", "/ready")[0] == 200)
        _until(lambda: bool(json.loads(asker.ask("GET", V1 + "pools/p/cache_locality", None, "admin")[2])["engines"]))
        ask_samples(asker)
        ask_gateway(asker)
        _until(lambda: asker.ask("POST", "/v1/chat/completions", CHAT, "limited")[0] == 200)
        ask_proxy(asker)
        ask_advisories(asker)
        ask_pages(asker, json.loads((state / "first_run.json").read_text())["admin_password"])
        ask_trials(asker)
        ask_switches(asker)
        asker.note("GET", "/metrics", only="series")
    return asker.seen


def _key(state: Path, *options: str) -> str:
    command = [sys.executable, "manage.py", "create_api_key", "--name", "golden", *options]
    return subprocess.check_output(command, cwd=ROOT, env=environment(state), text=True).strip()


@contextmanager
def _process(state: Path, *arguments: str) -> Iterator[None]:
    state.mkdir(exist_ok=True)
    command = [sys.executable, "manage.py", *arguments]
    with (state / f"{arguments[0]}.out").open("ab") as output:
        process = subprocess.Popen(command, cwd=ROOT, env=environment(state), stdout=output, stderr=output)
    try:
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _until(holds: Callable[[], bool]) -> None:
    until = time.monotonic() + START_S
    while time.monotonic() < until:
        try:
            if holds():
                return
        except OSError:
            pass
        time.sleep(0.1)
    raise TimeoutError("the program did not become ready")
