"""Two engines run and Switchyard is started: one command connects them, and hits are predicted exactly from then on."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.live.live_fleet import free_ports, wait_for
from tests.controlplane.simulated_engine import SimulatedEngine
from tests.program import ROOT, end

pytestmark = pytest.mark.processes
PATIENCE_S = 60.0


@pytest.fixture
def engines() -> Iterator[list[SimulatedEngine]]:
    running = [SimulatedEngine(model="org/Chat-8B", block_tokens=32) for _ in range(2)]
    try:
        for engine in running:
            engine.start()
        yield running
    finally:
        for engine in running:
            engine.stop()


@pytest.fixture
def switchyard(tmp_path: Path) -> Iterator[tuple[int, dict[str, str]]]:
    """`manage.py up` without a demo: its port and the environment that names its state."""
    port = free_ports(1)[0]
    environment = {**os.environ, "SWITCHYARD_STATE_DIR": str(tmp_path / "var")}
    command = [sys.executable, "manage.py", "up", "--port", str(port)]
    process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL)
    try:
        wait_for(f"http://127.0.0.1:{port}/live", 150.0)
        yield port, environment
    finally:
        end(process)


class Client:
    """Asks as the printed request does; 429 is asked again when its answer says."""

    def __init__(self, port: int, key: str) -> None:
        self._url = f"http://127.0.0.1:{port}"
        self._headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}

    def chat(self, text: str) -> tuple[int, int]:
        """Return predicted and reported cached tokens of one request."""
        body = {"model": "org/Chat-8B", "max_tokens": 2, "messages": [{"role": "user", "content": text}]}
        answer, decision = self._ask("/v1/chat/completions", json.dumps(body).encode())
        predicted = self._ask(f"/api/v1/explain/{decision}")[0]["decision"]["hit_tokens"]
        return predicted, answer["usage"]["prompt_tokens_details"]["cached_tokens"]

    def _ask(self, path: str, data: bytes | None = None) -> tuple[dict[str, Any], str]:
        until_s = time.monotonic() + PATIENCE_S
        while True:
            try:
                with urllib.request.urlopen(
                    urllib.request.Request(self._url + path, data, self._headers), timeout=60
                ) as answer:
                    return json.load(answer), answer.headers["x-switchyard-decision"] or ""
            except urllib.error.HTTPError as error:
                if error.code != 429 or time.monotonic() > until_s:
                    raise
                time.sleep(float(error.headers["Retry-After"]))


def test_one_command_later_predicted_hits_are_the_engines_cached_tokens(
    engines: list[SimulatedEngine], switchyard: tuple[int, dict[str, str]]
) -> None:
    port, environment = switchyard
    command = [sys.executable, "manage.py", "connect", *(engine.url for engine in engines), "--port", str(port)]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("Routing exactly.") == 2
    assert "does not" not in done.stdout, "the gateway is asked whether it serves them"
    key = re.search(r"API key \(shown once\): (\S+)", done.stdout)
    assert key is not None
    client = Client(port, key[1])
    conversations = [f"Conversation {number}. " * 40 for number in range(4)]
    assert [client.chat(text) for text in conversations] == [(0, 0)] * 4
    for text in conversations:
        predicted, cached = _once_heard(client, text)
        assert predicted == cached > 0


def _once_heard(client: Client, text: str) -> tuple[int, int]:
    """Ask until the engine's event of the first request has arrived, which nothing else tells."""
    until_s = time.monotonic() + PATIENCE_S
    while True:
        predicted, cached = client.chat(text)
        if predicted or time.monotonic() > until_s:
            return predicted, cached
