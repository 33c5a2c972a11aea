"""Requests to the program: management API, decisions, proxy, and pages, including callers' mistakes."""

from __future__ import annotations

import json
import re
from typing import Any
from urllib.parse import urlencode

from bench.golden.asker import Asker

MODEL = "golden-8b"
V1 = "/api/v1/"
ROLES = ("viewer", "operator", "admin")
LISTS = (
    "regions", "pools", "engines", "policies", "keys", "tenants", "recordings", "audit", "whatif", "canaries",
    "shadows", "decisions", "policies/schema", "pools/p/automation", "sovereignty", "kv_nodes",
)  # fmt: skip
ONCE = (
    "pools/p", "pools/p/plans", "pools/p/actions", "policies/golden", "policies/golden/versions",
    "policies/golden/versions/1", "policies/golden/versions/9", "regions/north", "tenants/default", "kv_moves",
    "kv_nodes/none", "keys/none", "engines/none", "engines/none/health", "jobs/999999", "whatif/999999",
    "shadows/999999", "canaries/none", "recordings/999999", "decisions/none", "audit/999999",
)  # fmt: skip
SHAPES = ("pools/p/rings", "pools/p/cache_locality", "jobs")
"""Paths whose values vary over time, so that only names are recorded."""
QUESTION: dict[str, Any] = {"model": MODEL, "prompt": "one two three " * 20, "max_tokens": 8}
CHAT = {"model": MODEL, "messages": [{"role": "user", "content": "hello"}], "max_tokens": 4, "seed": 1}
PAGES = (
    "/", "/requests", "/cache", "/cache/pools/p", "/policies", "/policies/golden", "/trials",
    "/trials/shadows", "/trials/canaries", "/trials/recordings", "/engines", "/access", "/access/keys",
    "/access/people", "/access/tenants", "/access/you", "/access/sessions", "/audit", "/jobs", "/automation",
    "/regions",    "/regions/sovereignty", "/regions/capacity", "/cache/store",
)  # fmt: skip


def ask_api(asker: Asker, engine_url: str) -> None:
    """Create a pool with an engine, including every possible caller's mistake, and list all objects in each role."""
    _regions_and_policies(asker)
    _pool_and_engine(asker, engine_url)
    _other_nouns(asker)
    for noun in LISTS:
        for role in (*ROLES, *(("infer", "") if noun == "regions" else ())):
            asker.note("GET", V1 + noun, None, role, only="shape" if noun in ("engines", "pools/p/automation") else "")
    for noun in ONCE:
        asker.note("GET", V1 + noun, None, "admin")


def ask_samples(asker: Asker) -> None:
    """Query the gateway's samples, after at least one that includes the engine."""
    for noun in SHAPES:
        asker.note("GET", V1 + noun, None, "admin", only="shape")


def _regions_and_policies(asker: Asker) -> None:
    note = asker.note
    asker.made(V1 + "regions", {"slug": "north", "name": "North"})
    note("POST", V1 + "regions", {"slug": "north", "name": "North"}, "admin")
    note("POST", V1 + "regions", {"slug": "x", "name": "X", "other": 1}, "admin")
    note("POST", V1 + "regions", {"slug": "south", "name": "South"}, "operator")
    note("POST", V1 + "regions", b"{", "admin")
    note("POST", V1 + "regions", b"a=1", "admin", headers={"Content-Type": "text/plain"})
    note("GET", V1 + "regions?limit=0", None, "viewer")
    note("GET", "/api/v1/nothing", None, "viewer")
    asker.made(V1 + "policies", {"slug": "golden", "name": "Golden"})
    versions = V1 + "policies/golden/versions"
    # What automations would observe in the first seconds is chance.
    off = {name: {"mode": "off"} for name in ("health", "rebalance", "scaling", "ratio")}
    asker.made(versions, {"document": {"ttft_slo_s": 3.0, "automation": off}, "message": "first"})
    note("POST", V1 + "policies/validate", {"document": {"placement": {"name": "no_such"}, "ttft_slo_s": -1}}, "admin")
    asker.made(versions + "/1/publish", {"instead_of": None})
    note("POST", versions + "/1/publish", {"instead_of": 7}, "admin")
    note("POST", versions + "/1/schedule", {"at": "2020-01-01T00:00:00Z", "instead_of": 1}, "admin")
    note("POST", versions + "/1/approve", {}, "admin")
    note("POST", V1 + "policies/golden/roll_back", {"number": 1, "instead_of": 1}, "admin")
    note("POST", V1 + "policies/golden/roll_back", {"number": 9, "instead_of": 1}, "admin")


def _pool_and_engine(asker: Asker, engine_url: str) -> None:
    note = asker.note
    pool = {"name": "P", "region": "north", "served_model": MODEL, "policy": "golden", "block_tokens": 16}
    asker.made(V1 + "pools", {"slug": "p", **pool})
    asker.made(V1 + "pools", {"slug": "empty", **pool, "served_model": "empty-8b"})
    engine = {"pool": "p", "name": "e1", "url": engine_url}
    asker.made(V1 + "engines", engine)
    note("POST", V1 + "engines", {**engine, "name": "e2", "url": "ftp://x"}, "admin")
    dry = [{"op": "register", "pool": "empty", "name": "e3", "url": "http://127.0.0.1:9"}, {"op": "delete"}]
    note("POST", V1 + "engines/bulk", {"operations": dry, "dry_run": True}, "admin")
    note("POST", V1 + "engines/bulk", {"operations": dry[:1], "dry_run": True}, "operator")
    path = V1 + "pools/p"
    note("PATCH", path, {"name": "Q"}, "admin")
    note("PATCH", path, {"name": "Q"}, "admin", headers={"If-Match": '"no"'})
    etag = asker.etag(path)
    note("PATCH", path, {"name": "Q"}, "admin", headers={"If-Match": etag})
    note("DELETE", path, None, "admin", headers={"If-Match": etag})
    note("GET", path, None, "viewer", headers={"If-None-Match": etag})
    note("GET", path, None, "viewer", headers={"If-None-Match": asker.etag(path)})
    note("GET", V1 + "pools/none", None, "viewer")
    note("DELETE", V1 + "pools", None, "admin")


def _other_nouns(asker: Asker) -> None:
    """Query tenants, API keys, sovereignty, nodes, trials, and recordings, mostly with mistakes."""
    note = asker.note
    asker.made(V1 + "tenants", {"slug": "acme", "name": "Acme"})
    note("DELETE", V1 + "tenants/acme", None, "admin", headers={"If-Match": asker.etag(V1 + "tenants/acme")})
    key = asker.made(V1 + "keys", {"tenant": "default", "name": "brief", "scopes": ["infer"], "max_in_flight": 2})
    note("POST", V1 + "keys", {"tenant": "default", "name": "x", "scopes": ["all"], "rate_per_min": -1}, "admin")
    note("POST", f"{V1}keys/{key['key_id']}/revoke", {"why": "over"}, "admin")
    rules = V1 + "sovereignty"
    rule = {"name": "stay", "tenants": ["default"], "from_regions": ["north"], "allow": False}
    note("PUT", rules, {"rules": [rule]}, "operator", headers={"If-Match": asker.etag(rules)})
    note("PUT", rules, {"rules": [rule]}, "admin", headers={"If-Match": asker.etag(rules)})
    note(
        "PUT", rules, {"rules": [{**rule, "from_regions": ["mars"]}]}, "admin", headers={"If-Match": asker.etag(rules)}
    )
    note("POST", V1 + "kv_nodes/none/unpin", {"key": "00"}, "operator")
    note("POST", V1 + "whatif", {"recording": 1, "draft": 2}, "operator")
    note("POST", V1 + "shadows", {"pool": "p", "draft": 7}, "operator")
    note("POST", V1 + "canaries", {"policy": "golden", "version": 7}, "operator")
    window = {"begins_at": "2020-01-01T00:00:00Z", "ends_at": "2020-01-01T00:10:00Z"}
    note("POST", V1 + "recordings", {"pool": "p", **window}, "operator")
    note("POST", V1 + "jobs/999999/cancel", {}, "operator")


def ask_gateway(asker: Asker) -> None:
    """Decide and report, with every error that a caller can cause."""
    note = asker.note
    for path in ("/live", "/ready", "/health", "/v1/models", f"/v1/models/{MODEL}", "/v1/models/none"):
        note("GET", path, None, "infer")
    note("POST", "/live")
    for key in ("admin", "infer", "hw_wrong", ""):
        decided = note("POST", V1 + "route", QUESTION, key)
        if key == "admin":
            _feedback(asker, decided["decision_id"])
    note("GET", V1 + "route", None, "admin")
    hostile: list[Any] = [{"model": "none", "prompt": "x"}, {"model": MODEL}, {**QUESTION, "max_tokens": -1}, [], b"{"]
    hostile += [b"", b"[" * 200, {"model": "empty-8b", "prompt": "x"}, {**QUESTION, "ttft_slo_s": 1e-6}]
    hostile += [
        {"model": MODEL, "token_ids": list(range(64))},
        {"model": MODEL, "block_hashes": [1, 2], "prompt_tokens": 32},
        {"model": MODEL, "messages": CHAT["messages"], "session_id": "s"},
    ]
    for body in hostile:
        note("POST", V1 + "route", body, "admin")
    note("POST", V1 + "route", b" " * (1 << 21), "admin")
    note("POST", V1 + "route/batch", {"requests": [QUESTION, {"model": "none", "prompt": "x"}]}, "admin")
    note("POST", V1 + "route/batch", {"requests": []}, "admin")
    note("POST", V1 + "observe", {"request": QUESTION, "engine": "e1", "started_at": 1.0, "total_s": 1.0}, "admin")
    note("POST", V1 + "requests/none/complete", {}, "admin")
    note("GET", V1 + "explain/none", None, "admin")
    limited = asker.ask("POST", V1 + "keys", {"tenant": "default", "name": "slow", "rate_per_min": 1}, "admin")[2]
    asker.keys["limited"] = json.loads(limited)["text"]


def _feedback(asker: Asker, decision: str) -> None:
    path = f"{V1}requests/{decision}/"
    for end in ("first_token", "complete", "complete", "fail", "nonsense"):
        asker.note("POST", path + end, {"cached_tokens": 0, "output_tokens": 8} if end == "complete" else {}, "admin")
    asker.note("GET", f"{V1}explain/{decision}", None, "admin")
    asker.note("GET", f"{V1}explain/{decision}", None, "infer")


def ask_proxy(asker: Asker) -> None:
    """Call every endpoint of the proxy, unstreamed and streamed, and with a model without a pool."""
    note = asker.note
    note("POST", "/v1/chat/completions", CHAT, "limited")
    streamed = {**CHAT, "stream": True, "stream_options": {"include_usage": True}}
    for body in (CHAT, streamed, {**CHAT, "model": "none"}, {**CHAT, "model": "empty-8b"}, {**CHAT, "messages": 1}):
        note("POST", "/v1/chat/completions", body, "infer")
    note("POST", "/v1/chat/completions", streamed, "infer", headers={"X-Request-Id": "a-name-of-the-caller"})
    note("POST", "/v1/completions", {"model": MODEL, "prompt": "hello", "max_tokens": 4}, "infer")
    note("POST", "/v1/completions", {"model": MODEL, "prompt": "x", "max_tokens": 10_000_000}, "infer")
    answers: dict[str, Any] = {"input": "hello", "max_output_tokens": 4}
    messages: dict[str, Any] = {"messages": CHAT["messages"], "max_tokens": 4}
    pair = {"text_1": "one", "text_2": "two"}
    ranked = {"query": "one", "documents": ["two", "three"]}
    asked: tuple[tuple[str, dict[str, Any]], ...] = (
        ("/v1/responses", answers), ("/v1/responses", {**answers, "stream": True}), ("/v1/responses", {}),
        ("/v1/messages", messages), ("/v1/messages", {**messages, "stream": True}), ("/v1/messages", {}),
        ("/v1/messages/count_tokens", messages), ("/v1/embeddings", {"input": "hello"}), ("/v1/embeddings", {}),
        ("/rerank", ranked), ("/v1/rerank", ranked), ("/score", pair), ("/v1/score", pair),
        ("/tokenize", {"prompt": "hello"}), ("/detokenize", {"tokens": [1, 2]}),
    )  # fmt: skip
    for path, body in asked:
        note("POST", path, {"model": MODEL, **body}, "infer")
        if body:
            note("POST", path, {"model": "none", **body}, "infer")
    note("GET", "/v1/responses", None, "infer")
    note("POST", "/v1/nothing", {"model": MODEL}, "infer")


def ask_advisories(asker: Asker) -> None:
    """Announce sessions, known and unknown, including with a browser's token."""
    note, path = asker.note, V1 + "advisories"
    note("POST", "/v1/chat/completions", CHAT, "admin", headers={"X-Session-Id": "s"})
    for body in (
        {"session_id": "s", "model": MODEL, "expected_arrival_s": 5.0},
        {"session_id": "unknown", "model": MODEL},
        {"session_id": "s", "model": "none"},
        {"session_id": "s", "priority": 10},
        {},
        b"{",
    ):
        note("POST", path, body, "admin")
    note("POST", path, {"session_id": "s"}, "")
    note("GET", path + "/s", None, "admin")
    note("DELETE", path + "/s", None, "admin")
    note("POST", V1 + "advisory_tokens", {"session_id": "s", "model": MODEL, "expires_in_s": 60}, "admin", only="shape")
    note("POST", V1 + "advisory_tokens", {"session_id": "s", "expires_in_s": 0}, "admin")


def ask_pages(asker: Asker, password: str) -> None:
    """Open every page in the menu, first without a session."""
    for path in (*PAGES[:3], "/no-such-page"):
        asker.note("GET", path)
    form = asker.ask("GET", "/login")[2]
    token = re.search(r'name="csrfmiddlewaretoken" value="([^"]+)"', form)
    sent = urlencode({"username": "admin", "password": password, "csrfmiddlewaretoken": token[1] if token else ""})
    headers = {"Content-Type": "application/x-www-form-urlencoded", "Cookie": asker.cookie_header()}
    status, _, _ = asker.ask("POST", "/login", sent.encode(), headers=headers)
    asker.seen.append({"request": "POST /login", "status": status})
    for path in (*PAGES, "/automation/p", "/policies/none", "/no-such-page"):
        asker.note("GET", path, headers={"Cookie": asker.cookie_header()})
        asker.seen[-1]["request"] = f"GET {path}"


def ask_trials(asker: Asker) -> None:
    """Start and end a shadow and a canary of a second version."""
    note = asker.note
    document = asker.ask("GET", V1 + "policies/golden/versions/1", None, "admin")[2]
    draft = {**json.loads(document)["document"], "placement": {"name": "round_robin"}}
    number = asker.made(V1 + "policies/golden/versions", {"document": draft, "message": "second"})["number"]
    shadow = asker.made(V1 + "shadows", {"pool": "p", "draft": number, "minutes": 5}, "operator", only="shape")
    note("POST", V1 + "shadows", {"pool": "p", "draft": number}, "operator")
    note("POST", f"{V1}shadows/{shadow['id']}/stop", {}, "operator", only="shape")
    canary = asker.made(V1 + "canaries", {"policy": "golden", "version": number, "steps": [0.1, 0.5]}, only="shape")
    note("POST", V1 + "canaries", {"policy": "golden", "version": number}, "admin")
    note("POST", f"{V1}canaries/{canary['key']}/abort", {"why": "enough"}, "admin", only="shape")
    for noun in ("shadows", "canaries"):
        note("GET", V1 + noun, None, "viewer", only="shape")


def ask_switches(asker: Asker) -> None:
    """Freeze and override automations, and take an engine out of rotation and back."""
    note, pool = asker.note, V1 + "pools/p/"
    note("POST", pool + "freeze", {"why": "look"}, "viewer")
    for switch, body in (
        ("freeze", {"why": "a test"}), ("unfreeze", {}), ("override", {"engines": 1, "until": "2020-01-01T00:00:00Z"}),
        ("end_override", {}), ("follow_advice", {"job": "scaling", "advice": "none"}),
    ):  # fmt: skip
        note("POST", pool + switch, body, "operator", only="" if switch == "override" else "shape")
    engines = json.loads(asker.ask("GET", V1 + "engines", None, "admin")[2])["results"]
    engine = f"{V1}engines/{engines[0]['engine_id']}"
    note("POST", engine + "/state", {"state": "asleep"}, "operator")
    for verb, body in (("state", {"state": "draining"}), ("state", {"state": "ready"}), ("end_verdict", {})):
        note("POST", f"{engine}/{verb}", body, "operator", only="shape")
    note("GET", engine + "/health", None, "viewer", only="shape")
    note("DELETE", engine, None, "viewer", headers={"If-Match": asker.etag(engine)})
