"""`manage.py connect` registers running engines, after which predicted hits are exact."""

from __future__ import annotations

import json
import os
import re
import socket
import sqlite3
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bench.live.live_fleet import wait_for
from bench.live.loopback_ports import free_ports
from tests.controlplane.simulated_engine import SimulatedEngine
from tests.patience import PATIENCE_S
from tests.program import ROOT, end

pytestmark = [pytest.mark.processes, pytest.mark.long]


@pytest.fixture(scope="module")
def engines() -> Iterator[list[SimulatedEngine]]:
    running = [SimulatedEngine(model="org/Chat-8B", block_tokens=32) for _ in range(2)]
    try:
        for engine in running:
            engine.start()
        yield running
    finally:
        for engine in running:
            engine.stop()


@pytest.fixture(scope="module")
def listed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the path of the HEADWAY_DISCOVERY file, which does not exist yet."""
    return tmp_path_factory.mktemp("discovery") / "engines.txt"


@pytest.fixture(scope="module")
def headway(tmp_path_factory: pytest.TempPathFactory, listed: Path) -> Iterator[tuple[int, dict[str, str]]]:
    """Run `manage.py up` without a demo; yield its port and the environment that names its state directory."""
    port = free_ports(1)[0]
    state_dir = tmp_path_factory.mktemp("connect") / "var"
    discovery = {"HEADWAY_DISCOVERY": f"chat-8b=file://{listed}"}
    environment = {**os.environ, **discovery, "HEADWAY_STATE_DIR": str(state_dir)}
    command = [sys.executable, "manage.py", "up", "--port", str(port)]
    process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, start_new_session=True)
    try:
        wait_for(f"http://127.0.0.1:{port}/live")
        yield port, environment
    finally:
        end(process)


class Client:
    """Sends requests like the one that the command prints; retries a 429 after its Retry-After time."""

    def __init__(self, port: int, key: str, model: str = "org/Chat-8B") -> None:
        self.engines: list[str] = []
        """Names of the engines that were chosen, in order."""
        self._model = model
        self._url = f"http://127.0.0.1:{port}"
        self._headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}

    def chat(self, text: str) -> tuple[int, int]:
        """Return predicted and reported cached tokens of one request."""
        body = {"model": self._model, "max_tokens": 2, "messages": [{"role": "user", "content": text}]}
        answer, decision = self._ask("/v1/chat/completions", json.dumps(body).encode())
        record = self._ask(f"/api/v1/explain/{decision}")[0]["decision"]
        self.engines.append(record["engine_id"])
        predicted = record["hit_tokens"]
        return predicted, answer["usage"]["prompt_tokens_details"]["cached_tokens"]

    def _ask(self, path: str, data: bytes | None = None) -> tuple[dict[str, Any], str]:
        until_s = time.monotonic() + PATIENCE_S
        while True:
            try:
                with urllib.request.urlopen(
                    urllib.request.Request(self._url + path, data, self._headers), timeout=PATIENCE_S
                ) as answer:
                    return json.load(answer), answer.headers["x-headway-decision"] or ""
            except urllib.error.HTTPError as error:
                # The gateway receives a new key a moment later.
                if error.code not in (401, 429) or time.monotonic() > until_s:
                    raise
                time.sleep(float(error.headers["Retry-After"] or 0.2))


def test_connect_command_makes_predicted_hits_equal_cached_tokens(
    engines: list[SimulatedEngine], headway: tuple[int, dict[str, str]]
) -> None:
    port, _ = headway
    done = connect(headway, *engines)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("Routing exactly.") == 2
    assert "does not" not in done.stdout, "the gateway is asked whether it serves them"
    key = re.search(r"API key \(shown once\): (\S+)", done.stdout)
    assert key is not None
    client = Client(port, key[1])
    conversations = [f"Conversation {number}. " * 40 for number in range(4)]
    assert [client.chat(text) for text in conversations] == [(0, 0)] * 4
    for text in conversations:
        predicted, cached = _chat_until_hit(client, text)
        assert predicted == cached > 0


def connect(headway: tuple[int, dict[str, str]], *engines: SimulatedEngine) -> subprocess.CompletedProcess[str]:
    """Run the command for these engines."""
    port, environment = headway
    command = [sys.executable, "manage.py", "connect", *(engine.url for engine in engines), "--port", str(port)]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


def test_connect_command_registers_two_ranks_of_one_address_with_separate_caches(
    headway: tuple[int, dict[str, str]],
) -> None:
    port, _ = headway
    ports = [free_ports(1)[0], *_two_ports_with_free_successors()]
    engine = SimulatedEngine(model="org/Ranked-8B", block_tokens=32, ports=ports, extra=("--data-parallel-size", "2"))
    engine.start()
    try:
        done = connect(headway, engine)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "2 data-parallel ranks" in done.stdout
        assert done.stdout.count("Routing exactly.") == 2
        client = Client(port, _new_key(headway), "org/Ranked-8B")
        # On a busy machine, one rank may enter rotation before the other.
        _ask_until_both_serve(client)
        conversations = [f"Conversation {number}. " * 40 for number in range(8)]
        assert [client.chat(text) for text in conversations] == [(0, 0)] * 8
        placed = client.engines[-len(conversations) :]
        assert len(set(placed)) == 2
        for text, name in zip(conversations, placed, strict=True):
            predicted, cached = _chat_until_hit(client, text)
            assert predicted == cached > 0
            assert client.engines[-1] == name
        names = {engine_name for engine_name in _engine_names(headway) if engine_name.startswith("127-0-0-1")}
        assert {f"127-0-0-1-{engine.ports[0]}-rank-{rank}" for rank in range(2)} <= names
    finally:
        engine.stop()


def _ask_until_both_serve(client: Client) -> None:
    until_s = time.monotonic() + PATIENCE_S
    while len(set(client.engines)) < 2:
        assert time.monotonic() < until_s, client.engines
        client.chat(f"Warm-up {len(client.engines)}. " * 40)


def _new_key(headway: tuple[int, dict[str, str]]) -> str:
    command = [sys.executable, "manage.py", "create_api_key", "--name", "ranks", "--scopes", "infer", "route", "manage"]
    made = subprocess.run(command, cwd=ROOT, env=headway[1], capture_output=True, text=True, check=True)
    key = re.search(r"hw_\S+", made.stdout)
    assert key, made.stdout
    return key[0]


def _two_ports_with_free_successors() -> list[int]:
    """Return two free ports whose next ports are free as well."""
    ports: list[int] = []
    while len(ports) < 2:
        port = free_ports(1)[0]
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port + 1)) != 0 and not {port, port + 1} & {item + 1 for item in ports}:
                ports.append(port)
    return ports


@pytest.mark.thorough
def test_engine_of_the_discovery_file_serves_until_the_file_omits_it(
    engines: list[SimulatedEngine], headway: tuple[int, dict[str, str]], listed: Path
) -> None:
    port, _ = headway
    first, second = engines
    third = SimulatedEngine(model="org/Chat-8B", block_tokens=32)
    assert connect(headway, first, second).returncode == 0
    third.start()
    try:
        listed.write_text(f"third, {third.url}\n")
        _until(lambda: len(_serving(port)) == 3)
        listed.write_text("fourth, http://127.0.0.1:1\n")
        _until(lambda: len(_serving(port)) == 2)
        _until(lambda: "third" not in _engine_names(headway))
    finally:
        third.stop()


def _serving(port: int) -> set[str]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=PATIENCE_S) as answer:
        text = answer.read().decode()
    return set(re.findall(r'^headway_engine_state\{engine="([^"]+)",state="serving"\} 1', text, re.MULTILINE))


def _engine_names(headway: tuple[int, dict[str, str]]) -> set[str]:
    state = Path(headway[1]["HEADWAY_STATE_DIR"])
    with sqlite3.connect(f"file:{state}/headway.sqlite3?mode=ro", uri=True) as database:
        return {name for (name,) in database.execute("SELECT name FROM controlplane_engine")}


def _until(there: Callable[[], bool]) -> None:
    until_s = time.monotonic() + 2 * PATIENCE_S
    while not there():
        assert time.monotonic() < until_s
        time.sleep(0.2)


def _chat_until_hit(client: Client, text: str) -> tuple[int, int]:
    """Repeat the request until a hit is predicted, that is, until the event of the first one has arrived."""
    until_s = time.monotonic() + PATIENCE_S
    while True:
        predicted, cached = client.chat(text)
        if predicted or time.monotonic() > until_s:
            return predicted, cached
