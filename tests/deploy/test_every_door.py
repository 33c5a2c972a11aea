"""Each way to an engine keeps what the matrix in docs/requests.md states about the caller."""

from __future__ import annotations

import json
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest

from gateway.app import AppSettings
from gateway.contracts.snapshot import ApiKeyEntry, encode_snapshot
from gateway.gateway import SNAPSHOT_TOPIC
from gateway.pools.pool.recent_decisions import DecisionRecord
from gateway.requests.caller_facts import CLIENT_HEADERS, TRACE
from headway_client import AsyncHeadway, AsyncHeadwayTransport
from headway_client import decisions as client_decisions
from headway_client.clients import httpx
from routing.policy.admission_document import SloClass
from routing.policy.policy_document import RoutingPolicy
from tests.deploy.behind import CHAT
from tests.deploy.real_proxy import ROOT, require_grpc
from tests.deploy.test_haproxy import haproxy
from tests.deploy.test_nginx import Fleet, nginx
from tests.gateway.proxy.test_tracing import TRACE as TRACE_ID
from tests.gateway.proxy.test_tracing import TRACEPARENT, Receiver, attributes_of, receiver
from tests.gateway.scripted_engine import ScriptedEngine
from tests.gateway.served_gateway import KEY, ServedGateway, served
from tests.patience import until

__all__ = ["receiver"]
pytestmark = pytest.mark.processes
DOORS = ("proxy", "api", "client", "nginx", "haproxy", "envoy")
COMPLETIONS = "/v1/chat/completions"
POLICY = RoutingPolicy(slo_classes={"gold": SloClass(ttft_slo_s=9.0), "iron": SloClass(ttft_slo_s=8.0)})
CLIENT, LIMITED = "hw_client", "hw_limited"
UUID = "2c4e1cf0-7a67-4d2e-9a4b-1d16d3f44752"
FORWARDED = [name.decode() for name in (*CLIENT_HEADERS, *TRACE)]
"""The headers that integrations have to forward."""

Answer = tuple[int, Any, dict[str, str]]
Send = Callable[[dict[str, Any], dict[str, str]], Awaitable[Answer]]


def key(text: str, **fields: Any) -> ApiKeyEntry:
    return ApiKeyEntry(key_id=text, sha256=sha256(text.encode()).hexdigest(), **{"tenant_id": "customer", **fields})


@dataclass
class Way:
    """One way to the engines: sends a client's request, and knows the gateway behind it."""

    send: Send
    gateway: ServedGateway
    engines: list[ScriptedEngine]
    receiver: Receiver

    async def chat(self, headers: dict[str, str] | None = None, *, client: str = CLIENT, **fields: Any) -> Answer:
        """Return status, body, and headers of a chat's answer."""
        return await self.send({**CHAT, **fields}, {"authorization": f"Bearer {client}", **(headers or {})})

    async def record(self, headers: dict[str, str] | None = None, **fields: Any) -> DecisionRecord:
        """Return the record of an answered chat."""
        status, body, answered = await self.chat(headers, **fields)
        assert status == 200, body
        record = self.gateway.app.recent.get(answered["x-headway-decision"])
        assert record is not None
        return record


async def keeps_the_key(way: Way) -> bool:
    record = await way.record()
    rejected = [
        (await way.chat(client="hw_unknown"))[:2],
        (await way.chat(client="hw_other_model"))[:2],
        (await way.chat(client=LIMITED))[:2],
        (await way.chat(client=LIMITED))[:2],
    ]
    codes = [(status, body["error"]["code"]) for status, body in rejected if status != 200]
    sent = [headers for engine in way.engines for headers in engine.headers]
    assert not any({"authorization", "x-api-key"} & headers.keys() for headers in sent)
    by_api_key = await way.send(CHAT, {"x-api-key": "hw_unknown"})
    return (record.tenant_id, codes, by_api_key[0]) == (
        "customer",
        [(401, "invalid_api_key"), (404, "model_not_found"), (429, "key_rate_limit")],
        401,
    )


async def keeps_the_session(way: Way) -> bool:
    headers = {"x-claude-code-session-id": UUID, "x-claude-code-agent-id": "a2", "x-claude-code-parent-agent-id": "a1"}
    child = await way.record(headers)
    other = await way.record({"x-session-affinity": "ses_b", "x-parent-session-id": "ses_a"})
    of_body = await way.record(prompt_cache_key=UUID)
    own = await way.record({"x-session-id": "of-header"}, session_id="of-body")
    assert own.session_id == "of-body"
    sessions = [(record.session_id, record.parent_session) for record in (child, other, of_body)]
    return sessions == [(f"{UUID}/a2", f"{UUID}/a1"), ("ses_b", "ses_a"), (UUID, "")]


async def keeps_the_agent(way: Way) -> bool:
    record = await way.record({"x-agent": "planner", "x-workflow-id": "w7"})
    return (record.agent, record.workflow_id, record.session_id) == ("planner", "w7", "w7/planner")


async def keeps_objectives(way: Way) -> bool:
    records = [
        await way.record(),
        await way.record({"x-headway-slo-class": "iron"}),
        await way.record({"x-llm-d-inference-objective": "iron"}),
        await way.record({"x-llm-d-inference-objective": "unknown", "x-llm-d-slo-ttft-ms": "7000"}),
        await way.record({"x-headway-slo-class": "gold"}, slo_class="iron"),
    ]
    seen = [(record.slo_class, record.ttft_slo_s) for record in records]
    return seen == [("gold", 9.0), ("iron", 8.0), ("iron", 8.0), ("gold", 7.0), ("iron", 8.0)]


async def keeps_the_priority(way: Way) -> bool:
    return [(await way.record(priority=number)).priority for number in (1, 9)] == [5, 9]


async def checks_the_cache_hint(way: Way) -> bool:
    assert (await way.chat({"x-headway-cache-hint": "ephemeral"}))[0] == 200
    of_header, of_field = await way.chat({"x-headway-cache-hint": "forever"}), await way.chat(cache_hint="forever")
    return [answer[0] for answer in (of_header, of_field)] == [400, 400]


async def keeps_the_trace(way: Way) -> bool:
    name = (await way.record({"traceparent": TRACEPARENT})).decision.decision_id
    sent = next(headers for engine in way.engines for headers in engine.headers if headers["x-request-id"] == name)
    await until(lambda: all(record.outcome for record in way.gateway.app.recent._records.values()))
    spans = [span for span in await way.receiver.spans() if span.trace_id.hex() == TRACE_ID]
    roots = [span for span in spans if attributes_of(span).get("gen_ai.usage.output_tokens") is not None]
    return (sent["traceparent"].split("-")[1], len(roots)) == (TRACE_ID, 1)


async def keeps_the_request_id(way: Way) -> bool:
    named = {"x-request-id": 'job;"7"'}
    answers = [await way.chat(named) for _ in range(2)]
    records = [way.gateway.app.recent.get(headers["x-headway-decision"]) for _, _, headers in answers]
    ids = {headers["x-request-id"] for engine in way.engines for headers in engine.headers[-2:]}
    assert len({headers["x-headway-decision"] for _, _, headers in answers} & ids) >= 1
    unnamed = (await way.chat())[2]
    assert unnamed["x-request-id"] == unnamed["x-headway-decision"]
    kept = [
        (record.client_request_id, headers["x-request-id"])
        for record, (*_, headers) in zip(records, answers, strict=True)
        if record
    ]
    return kept == [(named["x-request-id"], named["x-request-id"])] * 2


async def reports_usage(way: Way) -> bool:
    records = [await way.record(), await way.record(stream=True, stream_options={"include_usage": True})]
    await until(lambda: all(record.outcome for record in records))
    counts = [(item.outcome, item.engine_prompt_tokens, item.cached_tokens, item.output_tokens) for item in records]
    return counts == [("completed", 100, 64, 2)] * 2


async def names_rejections(way: Way) -> bool:
    status, _, malformed = await way.chat({"x-headway-slo-class": "unknown"})
    assert status == 400
    for engine in way.engines:
        await engine.stop()
    await until(lambda: way.gateway.app._unready() == "No engine is available.")
    status, body, headers = await way.chat()
    assert (status, body["error"]["code"], int(headers["retry-after"]) >= 1) == (503, "no_engine", True)
    record = way.gateway.app.recent.get(headers.get("x-headway-decision", ""))
    dropped = headers.get("x-llm-d-request-dropped-reason")
    return "x-headway-decision" in malformed and record is not None and dropped == "rejected-no-endpoints"


KEPT: dict[str, Callable[[Way], Awaitable[bool]]] = {
    "API key: tenant, limits, models": keeps_the_key,
    "session and parent": keeps_the_session,
    "agent and workflow": keeps_the_agent,
    "SLO class and objectives": keeps_objectives,
    "priority, within the key's ceiling": keeps_the_priority,
    "cache hint": checks_the_cache_hint,
    "trace": keeps_the_trace,
    "request id": keeps_the_request_id,
    "usage": reports_usage,
    "decision id, and reason of a rejection": names_rejections,
}
"""The rows of the matrix. The last probe stops the engines."""


def matrix() -> dict[str, dict[str, str]]:
    """Return the cells of the matrix in docs/requests.md by row and door."""
    text = (ROOT / "docs/requests.md").read_text()
    rows = re.search(r"\| kept \|.*?\n\|[-|]+\|\n((?:\|.*\n)+)", text)
    assert rows is not None
    cells = [[cell.strip() for cell in row.strip("|").split("|")] for row in rows[1].splitlines()]
    return {name: dict(zip(DOORS, kept, strict=True)) for name, *kept in cells}


@asynccontextmanager
async def way_by(door: str, tmp_path: Path, engines: list[ScriptedEngine], receiver: Receiver) -> AsyncIterator[Way]:
    """Run a gateway over these engines, with one way to them."""
    urls, settings = [engine.url for engine in engines], AppSettings(tracing=receiver.tracing)
    (tmp_path / "state").mkdir()
    async with AsyncExitStack() as stack:
        gateway = await stack.enter_async_context(served(urls, tmp_path / "state", policy=POLICY, settings=settings))
        before = gateway.gateway.snapshot
        assert before is not None
        keys = (
            key(KEY, tenant_id="edge", scopes=("route", "forward", "manage")),
            key(CLIENT, scopes=("infer",), slo_class="gold", priority_ceiling=5),
            key(LIMITED, scopes=("infer",), rate_per_min=1),
            key("hw_other_model", scopes=("infer",), served_models=("another",)),
        )
        changed = msgspec.structs.replace(before, version=2, published_at=time.time(), api_keys=keys)
        gateway.gateway._bus.publish(SNAPSHOT_TOPIC, encode_snapshot(changed))
        await until(lambda: gateway.gateway.snapshot is not None and gateway.gateway.snapshot.version == 2)
        send = await stack.enter_async_context(sender(door, tmp_path, gateway, engines))
        yield Way(send, gateway, engines, receiver)


@asynccontextmanager
async def sender(
    door: str, tmp_path: Path, gateway: ServedGateway, engines: list[ScriptedEngine]
) -> AsyncIterator[Send]:
    """Run what this way needs; yield the function that sends a client's request."""
    urls = [engine.url for engine in engines]
    if door == "api":
        yield lambda body, headers: by_hand(gateway, body, headers)
    elif door == "client":
        headway = AsyncHeadway(gateway.url, KEY, late_s=30.0)
        async with aclosing(headway), httpx.AsyncClient(transport=AsyncHeadwayTransport(headway)) as client:
            yield lambda body, headers: by_client(client, gateway.url, body, headers)
    else:
        async with AsyncExitStack() as stack:
            url = gateway.url
            if door == "nginx":
                fleet = Fleet({f"engine-{number}": url for number, url in enumerate(urls)})
                url = (await stack.enter_async_context(nginx(tmp_path, gateway.url, fleet))).url
            elif door == "haproxy":
                url = (await stack.enter_async_context(haproxy(tmp_path, gateway.url, engines))).url
            elif door == "envoy":
                require_grpc()
                from tests.deploy.test_envoy import picked

                url = (await stack.enter_async_context(picked(tmp_path, gateway.url, urls))).url
            yield lambda body, headers: by_url(url, body, headers)


async def by_url(url: str, body: dict[str, Any], headers: dict[str, str], path: str = COMPLETIONS) -> Answer:
    async with aiohttp.ClientSession() as client, client.post(url + path, json=body, headers=headers) as answer:
        text = await answer.text()
        lower = {name.lower(): value for name, value in answer.headers.items()}
        return answer.status, json.loads(text) if text.startswith("{") else text, lower


async def by_client(client: Any, url: str, body: dict[str, Any], headers: dict[str, str]) -> Answer:
    answer = await client.post(url + COMPLETIONS, json=body, headers=headers)
    return answer.status_code, answer.json() if answer.text.startswith("{") else answer.text, dict(answer.headers)


async def by_hand(gateway: ServedGateway, body: dict[str, Any], headers: dict[str, str]) -> Answer:
    """Do what docs/requests.md asks of a proxy: forward the client's facts, send the request, and report its usage."""
    sent = {name: headers[name] for name in FORWARDED if name in headers}
    key = headers.get("authorization") or f"Bearer {headers['x-api-key']}"
    own = {"x-original-uri": COMPLETIONS, "x-headway-client-authorization": key}
    if "x-request-id" in headers:
        own["x-headway-client-request-id"] = headers["x-request-id"]
    status, decision, sent_back = await gateway.post("/api/v1/route?wait=false", body, headers={**sent, **own})
    if status != 200:
        return status, decision, sent_back
    name = decision["decision_id"]
    passed = {key: value for key, value in headers.items() if key in ("traceparent", "tracestate")}
    answered, text, _ = await by_url(decision["engine"]["url"], body, {**passed, "x-request-id": name})
    await gateway.report(name, "first_token")
    usage = {"prompt_tokens": 100, "cached_tokens": 64, "output_tokens": 2}
    await gateway.report(name, "complete", usage)
    return answered, text, {"x-headway-decision": name, "x-request-id": headers.get("x-request-id", name)}


def test_the_matrix_has_each_fact_that_is_probed() -> None:
    assert matrix().keys() == KEPT.keys()
    assert {cell for row in matrix().values() for cell in row.values()} == {"yes", "checked"}


@pytest.mark.parametrize("door", DOORS)
async def test_each_door_keeps_what_the_matrix_states(
    engines: list[ScriptedEngine], tmp_path: Path, receiver: Receiver, door: str
) -> None:
    async with way_by(door, tmp_path, engines, receiver) as way:
        kept = {name: await probe(way) for name, probe in KEPT.items()}
        doors = {record.door for record in way.gateway.app.recent._records.values()}
    assert kept == {name: row[door] in ("yes", "checked") for name, row in matrix().items()}
    assert doors == {door}


def test_all_integrations_forward_the_same_headers() -> None:
    assert sorted(client_decisions.CLIENT_HEADERS) == sorted(FORWARDED)
    nginx_conf = (ROOT / "deploy/nginx/nginx.conf").read_text()
    for name in FORWARDED:
        assert f"proxy_set_header {name} $http_{name.replace('-', '_')};" in nginx_conf
    script = (ROOT / "deploy/haproxy/headway.lua").read_text()
    table = re.search(r"local CLIENT = \{(.*?)\}", script, re.DOTALL)
    assert table is not None and sorted(re.findall(r'"([^"]+)"', table[1])) == sorted(FORWARDED)


@pytest.mark.parametrize("door", DOORS[2:])
async def test_a_client_cannot_state_what_only_its_proxy_knows(
    engines: list[ScriptedEngine], tmp_path: Path, receiver: Receiver, door: str
) -> None:
    forged = {
        "x-headway-client-authorization": f"Bearer {CLIENT}",
        "x-headway-client-request-id": "forged",
        "x-headway-door": "api",
    }
    async with way_by(door, tmp_path, engines, receiver) as way:
        record = await way.record(forged, client=LIMITED)
        assert (record.door, record.client_request_id) == (door, "")
        assert (await way.chat(forged, client=LIMITED))[1]["error"]["code"] == "key_rate_limit"
