"""Some requests with their answers, asked of the whole program from outside: gateway, API and pages.

One simulated engine serves one pool, so that every decision has one possible outcome.
"""

from __future__ import annotations

import http.client
import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from bench.golden.masks import STABLE_HEADERS, body_of, masked, series_of, shape_of
from bench.golden.surface import ROOT, environment

PORTS_FROM = 18_450
MODEL = "golden-8b"
START_S = 120.0


@dataclass
class Asker:
    """Asks one program and writes down what it answered, in order."""

    port: int
    keys: dict[str, str] = field(default_factory=dict)
    cookies: dict[str, str] = field(default_factory=dict)
    seen: list[dict[str, Any]] = field(default_factory=list)

    def ask(
        self, method: str, path: str, body: Any = None, key: str = "", headers: dict[str, str] | None = None
    ) -> tuple[int, dict[str, str], str]:
        """Send one request; `body` is JSON unless it is bytes."""
        sent = {"Content-Type": "application/json", **(headers or {})}
        if key:
            sent["Authorization"] = f"Bearer {self.keys.get(key, key)}"
        data = body if isinstance(body, bytes | None) else json.dumps(body).encode()
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request(method, path, data, sent)
            answer = connection.getresponse()
            text = answer.read().decode()
        finally:
            connection.close()
        for cookie in answer.headers.get_all("Set-Cookie") or ():
            name, _, value = cookie.partition(";")[0].partition("=")
            self.cookies[name] = value
        return answer.status, {name.lower(): value for name, value in answer.getheaders()}, text

    def note(self, method: str, path: str, body: Any = None, key: str = "", **how: Any) -> Any:
        """Ask, write it down, and return the body as it came; `only="shape"` leaves out the values."""
        status, headers, text = self.ask(method, path, body, key, how.get("headers"))
        content_type = headers.get("content-type", "")
        if only := how.get("only"):
            told = series_of(text) if only == "series" else shape_of(json.loads(text)) if only == "shape" else None
        else:
            told = body_of(content_type, text)
        shown = body.decode()[:80] if isinstance(body, bytes) else body
        self.seen.append({
            "request": masked([f"{method} {path}", key, shown, how.get("headers")]),
            "status": status,
            "headers": {n: masked(v) if n in STABLE_HEADERS else "…" for n, v in sorted(headers.items())},
            "body": told,
        })  # fmt: skip
        return json.loads(text) if "json" in content_type else text


def exchanges(scratch: Path) -> list[dict[str, Any]]:
    """Return all requests with their answers."""
    state = scratch / "program"
    with ExitStack() as running:
        running.enter_context(_process(state, "simengine", "--port", str(PORTS_FROM + 1), "--served-model-name", MODEL,
            "--block-size", "16", "--time-scale", "50", "--seed", "7"))  # fmt: skip
        running.enter_context(_process(state, "up", "--no-demo", "--port", str(PORTS_FROM)))
        asker = Asker(PORTS_FROM)
        _until(lambda: asker.ask("GET", "/live")[0] == 200)
        for role in ("viewer", "operator", "admin"):
            scopes = ("infer", "route", "manage") if role == "admin" else ("manage",)
            asker.keys[role] = _key(state, "--role", role, "--scopes", *scopes)
        asker.keys["infer"] = _key(state, "--scopes", "infer")
        _api(asker)
        _until(lambda: asker.ask("GET", "/ready")[0] == 200)
        _gateway(asker)
        _pages(asker, json.loads((state / "first_run.json").read_text())["admin_password"])
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


def _until(holds: Any) -> None:
    until = time.monotonic() + START_S
    while time.monotonic() < until:
        try:
            if holds():
                return
        except OSError:
            pass
        time.sleep(0.1)
    raise TimeoutError("the program did not become ready")


def _api(asker: Asker) -> None:
    """Make a pool with an engine through the API, with the mistakes that one can make, and list all as each role."""
    note, v1 = asker.note, "/api/v1/"
    note("POST", v1 + "regions", {"slug": "north", "name": "North"}, "admin")
    note("POST", v1 + "regions", {"slug": "north", "name": "North"}, "admin")
    note("POST", v1 + "regions", {"slug": "x", "name": "X", "other": 1}, "admin")
    note("POST", v1 + "regions", {"slug": "south", "name": "South"}, "operator")
    note("POST", v1 + "policies", {"slug": "golden", "name": "Golden"}, "admin")
    versions = v1 + "policies/golden/versions"
    # What automations would see of the first seconds is chance.
    off = {name: {"mode": "off"} for name in ("health", "rebalance", "scaling", "ratio")}
    draft = {"document": {"ttft_slo_s": 3.0, "automation": off}, "message": "first"}
    note("POST", versions, draft, "admin")
    note("POST", v1 + "policies/validate", {"document": {"placement": {"name": "no_such"}, "ttft_slo_s": -1}}, "admin")
    note("POST", versions + "/1/publish", {"instead_of": None}, "admin")
    note("POST", versions + "/1/publish", {"instead_of": 7}, "admin")
    pool = {"name": "P", "region": "north", "served_model": MODEL, "policy": "golden", "block_tokens": 16}
    note("POST", v1 + "pools", {"slug": "p", **pool}, "admin")
    note("POST", v1 + "pools", {"slug": "empty", **pool, "served_model": "empty-8b"}, "admin")
    engine = {"pool": "p", "name": "e1", "url": f"http://127.0.0.1:{PORTS_FROM + 1}"}
    note("POST", v1 + "engines", engine, "admin")
    note("POST", v1 + "engines", {**engine, "name": "e2", "url": "ftp://x"}, "admin")
    note("PATCH", v1 + "pools/p", {"name": "Q"}, "admin")
    note("PATCH", v1 + "pools/p", {"name": "Q"}, "admin", headers={"If-Match": '"no"'})
    etag = asker.ask("GET", v1 + "pools/p", None, "admin")[1]["etag"]
    note("PATCH", v1 + "pools/p", {"name": "Q"}, "admin", headers={"If-Match": etag})
    note("DELETE", v1 + "pools/p", None, "admin", headers={"If-Match": etag})
    note("GET", v1 + "pools/p", None, "viewer", headers={"If-None-Match": etag})
    note("GET", v1 + "pools/none", None, "viewer")
    note("DELETE", v1 + "pools", None, "admin")
    note("POST", v1 + "regions", b"{", "admin")
    note("POST", v1 + "regions", b"a=1", "admin", headers={"Content-Type": "text/plain"})
    note("GET", v1 + "regions?limit=0", None, "viewer")
    note("GET", "/api/v1/nothing", None, "viewer")
    nouns = ("regions", "pools", "engines", "policies", "keys", "tenants", "recordings", "audit", "whatif", "canaries")
    for noun in (*nouns, "shadows", "decisions", "policies/schema", "pools/p/automation"):
        for role in ("viewer", "operator", "admin", *(("infer", "") if noun == "regions" else ())):
            note("GET", v1 + noun, None, role, only="shape" if noun in ("engines", "pools/p/automation") else "")
    note("GET", v1 + "jobs", None, "admin", only="shape")


def _gateway(asker: Asker) -> None:
    """Decide, report and proxy, with every error that a caller can bring about."""
    note = asker.note
    question: dict[str, Any] = {"model": MODEL, "prompt": "one two three " * 20, "max_tokens": 8}
    for path in ("/live", "/ready", "/v1/models", f"/v1/models/{MODEL}", "/v1/models/none"):
        note("GET", path, None, "infer")
    note("POST", "/live")
    for key in ("admin", "infer", "sy_wrong", ""):
        decided = note("POST", "/api/v1/route", question, key)
        if key == "admin":
            _feedback(asker, decided.get("decision_id", "none"))
    note("GET", "/api/v1/route", None, "admin")
    hostile: list[Any] = [{"model": "none", "prompt": "x"}, {"model": MODEL}, {**question, "max_tokens": -1}, [], b"{"]
    hostile += [b"", b"[" * 200, {"model": "empty-8b", "prompt": "x"}, {**question, "ttft_slo_s": 1e-6}]
    hostile += [
        {"model": MODEL, "token_ids": list(range(64))},
        {"model": MODEL, "block_hashes": [1, 2], "prompt_tokens": 32},
    ]
    for body in hostile:
        note("POST", "/api/v1/route", body, "admin")
    note("POST", "/api/v1/route", b" " * (1 << 21), "admin")
    note("POST", "/api/v1/route/batch", {"requests": [question, {"model": "none", "prompt": "x"}]}, "admin")
    note("POST", "/api/v1/route/batch", {"requests": []}, "admin")
    note("POST", "/api/v1/observe", {"request": question, "engine": "e1", "started_at": 1.0, "total_s": 1.0}, "admin")
    note("POST", "/api/v1/requests/none/complete", {}, "admin")
    note("GET", "/api/v1/explain/none", None, "admin")
    limited = asker.ask("POST", "/api/v1/keys", {"tenant": "default", "name": "slow", "rate_per_min": 1}, "admin")[2]
    asker.keys["limited"] = json.loads(limited)["text"]
    chat = {"model": MODEL, "messages": [{"role": "user", "content": "hello"}], "max_tokens": 4, "seed": 1}
    _until(lambda: asker.ask("POST", "/v1/chat/completions", chat, "limited")[0] == 200)
    note("POST", "/v1/chat/completions", chat, "limited")
    streamed = {**chat, "stream": True, "stream_options": {"include_usage": True}}
    for body in (chat, streamed, {**chat, "model": "none"}, {**chat, "model": "empty-8b"}, {**chat, "messages": 1}):
        note("POST", "/v1/chat/completions", body, "infer")
    note("POST", "/v1/chat/completions", streamed, "infer", headers={"X-Request-Id": "a-name-of-the-caller"})
    note("POST", "/v1/completions", {"model": MODEL, "prompt": "hello", "max_tokens": 4}, "infer")
    note("POST", "/v1/completions", {"model": MODEL, "prompt": "x", "max_tokens": 10_000_000}, "infer")
    note("POST", "/v1/embeddings", {}, "infer")


def _feedback(asker: Asker, decision: str) -> None:
    path = f"/api/v1/requests/{decision}/"
    for end in ("first_token", "complete", "complete", "fail", "nonsense"):
        asker.note("POST", path + end, {"cached_tokens": 0, "output_tokens": 8} if end == "complete" else {}, "admin")
    asker.note("GET", f"/api/v1/explain/{decision}", None, "admin")
    asker.note("GET", f"/api/v1/explain/{decision}", None, "infer")


def _pages(asker: Asker, password: str) -> None:
    """Open every page that has a menu entry, first as nobody."""
    paths = ["/", "/decisions", "/affinity", "/affinity/p", "/policies", "/policies/golden", "/experiments"]
    paths += ["/experiments/shadows", "/experiments/canaries", "/experiments/recordings", "/topology", "/access"]
    paths += ["/access/keys", "/access/people", "/access/tenants", "/access/you", "/audit", "/jobs", "/steering"]
    for path in (*paths[:3], "/no-such-page"):
        asker.note("GET", path)
    form = asker.ask("GET", "/login")[2]
    token = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', form)
    sent = urlencode({"username": "admin", "password": password, "csrfmiddlewaretoken": token[1] if token else ""})
    headers = {"Content-Type": "application/x-www-form-urlencoded", "Cookie": _cookies(asker)}
    status, _, _ = asker.ask("POST", "/login", sent.encode(), headers=headers)
    asker.seen.append({"request": "POST /login", "status": status})
    for path in (*paths, "/steering/p", "/policies/none", "/no-such-page"):
        asker.note("GET", path, headers={"Cookie": _cookies(asker)})
        asker.seen[-1]["request"] = f"GET {path}"


def _cookies(asker: Asker) -> str:
    return "; ".join(f"{name}={value}" for name, value in asker.cookies.items())
