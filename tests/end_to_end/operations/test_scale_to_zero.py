"""An idle pool's engines go to sleep; its next request waits while one is woken, and is served."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest

from bench.live.live_fleet import wait_for
from bench.live.loopback_ports import free_ports
from tests.controlplane.simulated_engine import SimulatedEngine
from tests.patience import PATIENCE_S
from tests.program import ROOT, end

pytestmark = [pytest.mark.processes, pytest.mark.long, pytest.mark.thorough]

MODEL = "org/Chat-8B"
SCALES_TO_ZERO = """
from controlplane.fleet.models.pool import Pool
from controlplane.fleet.topology import change_pool
from controlplane.platform.actor import program
from controlplane.policies.publish import draft, publish_version
pool, actor = Pool.objects.get(served_model="org/Chat-8B"), program("tests")
change_pool(pool, {"actuator": "sleep", "actuator_settings": {}}, actor=actor)
scaling = {"mode": "act", "min_engines": 0, "window_s": 5, "warm_up_s": 5, "down_cool_down_s": 4, "max_down": 2}
live = pool.policy.live_version
document = {**live.document, "automation": {"scaling": scaling}}
version = draft(pool.policy, document, actor=actor)
publish_version(version, instead_of=live.number, actor=actor)
"""


def until(holds: Callable[[], bool], what: str) -> None:
    deadline_s = time.monotonic() + 3 * PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline_s, what
        time.sleep(0.1)


def get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=PATIENCE_S) as answer:
        return str(answer.read().decode())


def test_an_idle_pool_sleeps_and_its_next_request_wakes_an_engine(tmp_path: Path) -> None:
    port, engines = free_ports(1)[0], [SimulatedEngine(model=MODEL, block_tokens=32) for _ in range(2)]
    url = f"http://127.0.0.1:{port}"
    environment = {**os.environ, "HEADWAY_STATE_DIR": str(tmp_path / "var")}

    def manage(*command: str) -> str:
        done = subprocess.run(
            [sys.executable, "manage.py", *command],
            cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=3 * PATIENCE_S,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def wanted() -> str:
        values = re.findall(r"^headway_wanted_engines\{[^}]*\} (\S+)$", get(f"{url}/metrics"), re.MULTILINE)
        return "".join(values)

    def sleep() -> list[bool]:
        return [bool(json.loads(get(f"{engine.url}/is_sleeping"))["is_sleeping"]) for engine in engines]

    process = None
    try:
        for engine in engines:
            engine.start()
        command = [sys.executable, "manage.py", "up", "--port", str(port)]
        process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, start_new_session=True
        )
        wait_for(f"{url}/live")
        key = re.search(
            r"API key \(shown once\): (\S+)",
            manage("connect", *(engine.url for engine in engines), "--port", str(port)),
        )
        assert key is not None
        manage("shell", "-c", SCALES_TO_ZERO)
        until(lambda: sleep() == [True, True], "the idle engines do not sleep")
        until(lambda: wanted() == "0.0", "the plan is not 0")
        assert "true" in get(f"{url}/ready"), "a pool at rest takes requests"
        body = json.dumps({"model": MODEL, "max_tokens": 2, "messages": [{"role": "user", "content": "hello"}]})
        headers = {"Authorization": f"Bearer {key[1]}", "Content-Type": "application/json"}
        request = urllib.request.Request(f"{url}/v1/chat/completions", body.encode(), headers)
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
            assert json.load(answer)["usage"]["completion_tokens"] == 2
        assert sorted(sleep()) == [False, True]
        until(lambda: wanted() == "1.0", "the plan does not rise")
    finally:
        if process is not None:
            end(process)
        for engine in engines:
            engine.stop()
