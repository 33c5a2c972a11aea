"""`manage.py up --engines URL…` routes to engines that are named once and may start later."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from bench.live.loopback_ports import free_ports
from tests.controlplane.simulated_engine import SimulatedEngine
from tests.patience import wait_until
from tests.program import ROOT, end

pytestmark = [pytest.mark.processes, pytest.mark.long]


HELLO: dict[str, Any] = {"max_tokens": 2, "messages": [{"role": "user", "content": "Hello"}]}


class Client:
    """Sends JSON with one API key."""

    def __init__(self, port: int, key: str) -> None:
        self._url = f"http://127.0.0.1:{port}"
        self._headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}

    def get(self, path: str) -> Any:
        """Return the body of an answer."""
        with urllib.request.urlopen(urllib.request.Request(self._url + path, headers=self._headers)) as answer:
            return json.load(answer)

    def post(self, path: str, body: Any) -> tuple[int, Any]:
        """Return status and body of an answer."""
        request = urllib.request.Request(self._url + path, json.dumps(body).encode(), self._headers)
        try:
            with urllib.request.urlopen(request) as answer:
                return answer.status, json.load(answer)
        except urllib.error.HTTPError as error:
            return error.code, error.read()


def test_named_engines_serve_the_printed_request(tmp_path: Path) -> None:
    early, late = SimulatedEngine(model="org/Chat-8B", events=False), SimulatedEngine(model="org/Chat-8B", events=False)
    early.start()
    (port,) = free_ports(1)
    command = [sys.executable, "manage.py", "up", "--port", str(port), "--engines", f"{early.url}/v1,{late.url}"]
    environment = {**os.environ, "HEADWAY_STATE_DIR": str(tmp_path / "var")}
    process = subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    try:
        assert process.stdout is not None
        said = ""
        for line in process.stdout:
            said += line
            if "Trying again" in line:
                assert late.url in line
                late.start()
            if " -d " in line:
                break
        assert said.count("Routing by estimated hits.") == 2
        key = re.search(r"API key \(shown once\): (hw_\S+)", said)
        assert key is not None
        ours = Client(port, key[1])
        assert ours.post("/v1/chat/completions", {"model": "org/Chat-8B", **HELLO})[0] == 200
        _other_names_and_calls(ours, Client(port, _manage_key(environment)), sorted([early.url, late.url]))
    finally:
        end(process)
        if process.stdout is not None:
            process.stdout.close()
        early.stop()
        late.stop()


def _other_names_and_calls(ours: Client, manage: Client, urls: list[str]) -> None:
    """Send requests as clients of another router would."""
    assert sorted(manage.get("/list_workers")["urls"]) == urls
    assert manage.post("/api/v1/services", {"slug": "gpt-x", "pools": ["chat-8b"]})[0] == 201
    wait_until(lambda: ours.post("/v1/chat/completions", {"model": "gpt-x", **HELLO})[0] == 200)
    status, selection = ours.post("/select_and_reserve", {"model_name": "gpt-x", "token_ids": [1] * 64})
    assert (status, selection["endpoint"] in urls) == (200, True)
    assert {row["worker_id"] for row in manage.get("/workers")["workers"]} >= {selection["worker_id"]}
    wait_until(lambda: {row["load"] for row in manage.get("/get_loads")["workers"]} == {0, 1})


def _manage_key(environment: dict[str, str]) -> str:
    options = ("--name", "m", "--scopes", "manage", "--role", "admin", "--all-pools")
    command = [sys.executable, "manage.py", "create_api_key", *options]
    made = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    match = re.search(r"hw_\S+", made.stdout)
    assert match is not None
    return match[0]
