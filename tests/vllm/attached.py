"""Headway with real engines: `manage.py up`, the connect command, and a client that reads the predictions."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.live.live_fleet import wait_for
from bench.live.loopback_ports import free_ports
from tests.patience import PATIENCE_S
from tests.program import ROOT, end
from tests.vllm.real_engine import MODEL, RealEngine


@dataclass(frozen=True)
class Answer:
    """A client's response, and the decision's prediction for it."""

    status: int
    body: dict[str, Any]
    predicted: int | None
    """Prompt tokens that the index expected in the engine's cache; None without a decision."""
    engine: str

    @property
    def cached(self) -> int:
        """Return the prompt tokens that hit the engine's cache."""
        return int((self.body["usage"]["prompt_tokens_details"] or {}).get("cached_tokens") or 0)

    @property
    def text(self) -> str:
        """Return the model's text."""
        choice = self.body["choices"][0]
        return str(choice["text"] if "text" in choice else choice["message"]["content"])


class Headway:
    """A running `manage.py up`. Mutable: `key`, known once `connect` has printed it, and an admin's key."""

    def __init__(self, port: int, environment: dict[str, str]) -> None:
        self.url = f"http://127.0.0.1:{port}"
        self.key = ""
        self._admin = ""
        self._port = port
        self._environment = environment

    def connect(self, *engines: RealEngine) -> str:
        """Run the connect command for these engines and return its output."""
        command = ("connect", *(engine.url for engine in engines), "--port", str(self._port))
        try:
            printed = self.manage(*command)
        except AssertionError as error:
            # SQLite's lock can outlast its limit on a machine that is busy with engines' starts; follow the message.
            if "Connect it again" not in str(error):
                raise
            printed = self.manage(*command)
        key = re.search(r"API key \(shown once\): (\S+)", printed)
        self.key = key[1] if key else self.key
        return printed

    def manage(self, *words: str) -> str:
        """Run a command of manage.py and return its output; raises AssertionError if it fails."""
        command = [sys.executable, "manage.py", *words]
        done = subprocess.run(command, cwd=ROOT, env=self._environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def ask(self, path: str, *, key: str = "", **body: Any) -> Answer:
        """Send one request once all events have arrived; retry a 429 after its Retry-After."""
        self.settle()
        return self.send(path, key=key, **body)

    def send(self, path: str, *, key: str = "", **body: Any) -> Answer:
        """Send one request immediately."""
        key = key or self.key
        until_s = time.monotonic() + PATIENCE_S
        while True:
            status, answer, headers = self.call(path, {"model": MODEL, "temperature": 0, **body}, key=key)
            if status != 429 or time.monotonic() > until_s:
                break
            time.sleep(float(headers["Retry-After"]))
        decision = headers.get("x-headway-decision", "")
        decided = self.call(f"/api/v1/explain/{decision}", key=key)[1].get("decision", {}) if decision else {}
        return Answer(status, answer, decided.get("hit_tokens"), decided.get("engine_id", ""))

    def call(
        self, path: str, body: Any = None, *, key: str = "", method: str | None = None, etag: str = ""
    ) -> tuple[int, dict[str, Any], Any]:
        """Return status, JSON and headers."""
        headers = {"Authorization": f"Bearer {key or self.key}", "Content-Type": "application/json"}
        headers |= {"If-Match": etag} if etag else {}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE_S) as answer:
                return answer.status, _decoded(answer.read()), answer.headers
        except urllib.error.HTTPError as error:
            return error.code, json.loads(error.read()), error.headers

    def engine_id(self, url: str) -> str:
        """Return the id of the engine at this URL."""
        rows = self._as_admin("/api/v1/engines")[0]["results"]
        return next(str(row["engine_id"]) for row in rows if row["url"] == url)

    def change_engine(self, engine_id: str, path: str, body: Any, *, method: str = "POST") -> None:
        """Change one engine over REST as an admin; raise AssertionError if it is rejected."""
        etag = self._as_admin(f"/api/v1/engines/{engine_id}")[1].get("ETag", "")
        answer = self.call(f"/api/v1/engines/{engine_id}{path}", body, key=self.admin_key, method=method, etag=etag)
        assert answer[0] == 200, answer[1]

    @property
    def admin_key(self) -> str:
        """Return an API key with all permissions over REST."""
        if not self._admin:
            self._admin = self.manage("create_api_key", "--scopes", "manage", "--role", "admin").strip()
        return self._admin

    def _as_admin(self, path: str) -> tuple[dict[str, Any], Any]:
        until_s = time.monotonic() + PATIENCE_S
        while True:
            # A gateway receives a new key within about a second.
            status, answer, headers = self.call(path, key=self.admin_key)
            if status == 200 or time.monotonic() > until_s:
                assert status == 200, answer
                return answer, headers
            time.sleep(0.2)

    def settle(self) -> None:
        """Wait until no more events arrive, so that the next prediction includes all cached blocks."""
        quiet, before = 0, -1.0
        while quiet < 3:
            now = self.metric("headway_kv_events_total")
            quiet, before = (quiet + 1, now) if now == before else (0, now)
            time.sleep(0.1)

    def metric(self, name: str, **labels: str) -> float:
        """Return the sum of a metric's series that have these labels."""
        with urllib.request.urlopen(f"{self.url}/metrics", timeout=10) as answer:
            text = answer.read().decode()
        series = re.findall(rf"^{name}(\{{[^}}]*\}})? (\S+)$", text, re.MULTILINE)
        return sum(
            float(value)
            for pairs, value in series
            if all(f'{label}="{wanted}"' in pairs for label, wanted in labels.items())
        )

    def states(self) -> dict[str, str]:
        """Return the condition of each engine."""
        with urllib.request.urlopen(f"{self.url}/metrics", timeout=10) as answer:
            text = answer.read().decode()
        return dict(re.findall(r'^headway_engine_state\{engine="([^"]+)",state="([^"]+)"\} 1', text, re.MULTILINE))

    def until_serving(self, count: int) -> None:
        """Wait until this many engines serve; raise AssertionError at the time limit."""
        until_s = time.monotonic() + PATIENCE_S
        while (states := list(self.states().values())).count("serving") != count:
            assert time.monotonic() < until_s, states
            time.sleep(0.2)


def _decoded(data: bytes) -> dict[str, Any]:
    """Return a whole response, or the last chunk of a stream, which has the usage."""
    if not data.startswith(b"data:"):
        return json.loads(data)
    chunks = [line[6:] for line in data.splitlines() if line.startswith(b"data: {")]
    return json.loads(chunks[-1])


@contextmanager
def running_headway(state_dir: Path, *options: str, **variables: str) -> Iterator[Headway]:
    """Run `manage.py up` on a free port with additional environment variables, and end it afterward."""
    port = free_ports(1)[0]
    environment = {**os.environ, "HEADWAY_STATE_DIR": str(state_dir), **variables}
    command = [sys.executable, "manage.py", "up", "--port", str(port), *options]
    process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL)
    try:
        wait_for(f"http://127.0.0.1:{port}/live")
        yield Headway(port, environment)
    finally:
        end(process)


def words(count: int, about: str) -> str:
    """Return about this many tokens of text whose beginning is unique to `about`."""
    parts: Sequence[str] = [f"{about} {number} gateway" for number in range(count // 6 + 1)]
    return " ".join(parts)
