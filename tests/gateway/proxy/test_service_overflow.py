"""A request to a named service goes to its pools in order, then to its provider, and its record shows the way."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

import openai
import pytest
from msgspec.structs import replace

from gateway.base.settings import GatewaySettings
from gateway.contracts.request_batch import TOPIC, RequestBatch, decode_batch, decode_decisions, decode_rows
from gateway.contracts.snapshot import Snapshot
from gateway.pools.services.provider import FAILURES
from routing.policy.admission_document import AdmissionDocument
from routing.policy.policy_document import RoutingPolicy
from routing.regions.sovereignty import SovereigntyDocument, SovereigntyRule
from tests.gateway.named_services import (
    ALIAS,
    ASKED,
    KEY_VARIABLE,
    LARGE,
    NAME,
    PROVIDERS_KEY,
    SMALL,
    explained,
    named,
    provider_of,
    serving,
)
from tests.gateway.scripted_engine import ScriptedEngine
from tests.gateway.served_gateway import CHAT, KEY, OTHER_KEY, ServedGateway
from tests.patience import until

PROVIDER_COST = 100 * 2e-6 + 2 * 6e-6


class Parts(NamedTuple):
    large: ScriptedEngine
    small: ScriptedEngine
    provider: ScriptedEngine

    def snapshot(self, **provider: Any) -> Snapshot:
        return named((self.large, self.small), provider_of(self.provider, **provider))

    @property
    def asked(self) -> tuple[int, int, int]:
        return len(self.large.bodies), len(self.small.bodies), len(self.provider.bodies)


@pytest.fixture
async def parts(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Parts]:
    monkeypatch.setenv(KEY_VARIABLE, PROVIDERS_KEY)
    async with ScriptedEngine() as large, ScriptedEngine() as small, ScriptedEngine() as provider:
        yield Parts(large, small, provider)


@pytest.fixture
async def gateway(parts: Parts, tmp_path: Path) -> AsyncIterator[ServedGateway]:
    async with serving(parts.snapshot(), tmp_path) as running:
        yield running


async def lose(gateway: ServedGateway, *engines: ScriptedEngine) -> None:
    """Stop these engines, and return once no pool counts on them."""
    for engine in engines:
        await engine.stop()
    pools = gateway.gateway.pools.values()
    gone = {engine.url for engine in engines}
    urls = [(pool, one.entry.engine_id) for pool in pools for one in pool.engines.values() if one.entry.url in gone]
    await until(lambda: not any(engine_id in pool.accepting for pool, engine_id in urls))


async def test_the_first_pool_gets_the_request_under_its_own_name_of_the_model(
    gateway: ServedGateway, parts: Parts
) -> None:
    status, _, headers = await gateway.post(CHAT, ASKED)
    assert (status, parts.asked) == (200, (1, 0, 0))
    assert parts.large.bodies[0] == {**ASKED, "model": LARGE}
    shown = await explained(gateway, headers)
    assert (shown["model"], shown["decision"]["pool_id"]) == (ALIAS, "large")
    assert shown["service"] == {"service": NAME, "asked": ALIAS, "tried": [], "provider": "", "provider_model": "",
                                "status": 0, "withheld": "", "cost": None}  # fmt: skip


async def test_the_second_pool_serves_while_the_first_has_no_engine(gateway: ServedGateway, parts: Parts) -> None:
    await lose(gateway, parts.large)
    status, _, headers = await gateway.post(CHAT, {**ASKED, "model": NAME})
    assert (status, parts.asked) == (200, (0, 1, 0))
    assert parts.small.bodies[0]["model"] == SMALL
    shown = await explained(gateway, headers)
    assert shown["decision"]["pool_id"] == "small"
    assert shown["service"]["tried"] == [["large", "no_engine"]]
    assert 'headway_service_overflows_total{pool="large",reason="no_engine",service="chat"} 1.0' in (
        await gateway.metrics()
    )


async def test_an_engine_that_dies_before_its_answer_continues_the_same_record(
    gateway: ServedGateway, parts: Parts
) -> None:
    parts.large.die_before_first_byte = True
    status, _, headers = await gateway.post(CHAT, ASKED)
    assert (status, parts.small.bodies[0]["model"]) == (200, SMALL)
    shown = await explained(gateway, headers)
    assert (shown["attempts"][0], shown["attempts"][-1]) == ("engine-0", "engine-1")
    assert shown["service"]["tried"][0][0] == "large"
    assert shown["outcome"]["state"] == "completed"
    text = await gateway.metrics()
    assert 'headway_requests_total{outcome="completed",pool="small"} 1.0' in text
    assert 'outcome="failed"' not in text
    for pool in gateway.gateway.pools.values():
        pool.router.check()
        assert len(pool.router.reservations) == 0


async def test_the_provider_answers_if_no_pool_has_an_engine(gateway: ServedGateway, parts: Parts) -> None:
    await lose(gateway, parts.large, parts.small)
    async with openai.AsyncOpenAI(base_url=f"{gateway.url}/v1", api_key=KEY) as client:
        raw = await client.chat.completions.with_raw_response.create(
            model=ALIAS, messages=[{"role": "user", "content": "hi"}], extra_body={"session_id": "s", "cache_salt": "t"}
        )
    assert raw.parse().choices[0].message.content == "Hello"
    assert parts.provider.bodies == [{"model": "external-1", "messages": [{"role": "user", "content": "hi"}]}]
    shown = await explained(gateway, dict(raw.headers))
    assert shown["outcome"]["state"] == "completed"
    assert shown["outcome"]["output_tokens"] == 2
    story = shown["service"]
    assert story["tried"] == [["large", "no_engine"], ["small", "no_engine"]]
    assert (story["provider"], story["provider_model"], story["status"]) == ("127.0.0.1", "external-1", 200)
    assert story["cost"] == pytest.approx(PROVIDER_COST)
    text = await gateway.metrics()
    assert 'headway_provider_requests_total{outcome="completed",service="chat"} 1.0' in text
    assert 'headway_provider_tokens_total{kind="prompt",service="chat"} 100.0' in text
    (cost,) = [line for line in text.splitlines() if line.startswith("headway_provider_cost_dollars_total{")]
    assert float(cost.split()[-1]) == pytest.approx(PROVIDER_COST)
    assert 'headway_requests_total{outcome="rejected"' not in text


async def test_a_provider_gets_its_own_key_and_nothing_of_the_client(gateway: ServedGateway, parts: Parts) -> None:
    await lose(gateway, parts.large)
    headers = {
        "x-session-id": "s",
        "x-api-key": "no",
        "cookie": "a=b",
        "x-headway-agent": "planner",
        "openai-beta": "x",
    }
    await gateway.post(CHAT, ASKED, headers=headers)
    await lose(gateway, parts.small)
    await gateway.post(CHAT, ASKED, headers=headers)
    assert PROVIDERS_KEY not in json.dumps(parts.small.headers)
    (sent,) = parts.provider.headers
    assert sent.pop("authorization") == f"Bearer {PROVIDERS_KEY}"
    assert sent.keys() == {"host", "accept", "accept-encoding", "user-agent", "content-type", "content-length"}
    assert KEY not in json.dumps(sent)


async def test_a_stream_of_the_provider_passes_without_usage_that_the_client_did_not_request(
    gateway: ServedGateway, parts: Parts
) -> None:
    await lose(gateway, parts.large, parts.small)
    chunks, headers = await gateway.stream({**ASKED, "stream": True})
    whole = b"".join(chunks)
    assert whole.endswith(b"data: [DONE]\n\n")
    assert b"usage" not in whole
    assert parts.provider.bodies[0]["stream_options"] == {"include_usage": True}
    shown = await explained(gateway, {"x-headway-decision": headers["x-headway-decision"]})
    assert shown["service"]["cost"] == pytest.approx(PROVIDER_COST)
    assert shown["outcome"]["first_token_after_s"] > 0


async def test_a_stream_that_the_provider_breaks_off_ends_with_an_error_event(
    gateway: ServedGateway, parts: Parts
) -> None:
    await lose(gateway, parts.large, parts.small)
    parts.provider.die_after_chunks = 1
    chunks, headers = await gateway.stream({**ASKED, "stream": True})
    assert b"broken_stream" in b"".join(chunks)
    shown = await explained(gateway, {"x-headway-decision": headers["x-headway-decision"]})
    assert (shown["outcome"]["state"], shown["outcome"]["error"]) == ("failed", "broken_stream")


@pytest.mark.parametrize("status", [401, 404, 429, 500, 302])
async def test_a_provider_that_fails_leaves_the_pools_rejection_to_the_client(
    gateway: ServedGateway, parts: Parts, status: int
) -> None:
    await lose(gateway, parts.large, parts.small)
    parts.provider.status = status
    provider = gateway.gateway.services.names()[NAME].provider
    assert provider is not None
    for stream in (False, True):
        provider._paused_until_s = 0.0
        answered, body, headers = await gateway.post(CHAT, {**ASKED, "stream": stream})
        assert (answered, body["error"]["code"]) == (503, "no_engine")
        assert "retry-after" in headers
    shown = await explained(gateway, headers)
    assert shown["outcome"]["state"] == "rejected"
    text = await gateway.metrics()
    assert 'headway_provider_requests_total{outcome="unanswered",service="chat"}' in text
    assert 'headway_requests_total{outcome="rejected",pool="small"} 2.0' in text


async def test_a_provider_that_blames_the_content_gives_the_client_its_answer(
    gateway: ServedGateway, parts: Parts
) -> None:
    await lose(gateway, parts.large, parts.small)
    parts.provider.status = 400
    status, body, headers = await gateway.post(CHAT, ASKED)
    assert (status, body["error"]["message"]) == (400, "engine says no")
    assert (await explained(gateway, headers))["outcome"]["state"] == "client_error"


async def test_a_provider_pauses_after_failures_and_gets_requests_again(
    gateway: ServedGateway, parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    await lose(gateway, parts.large, parts.small)
    parts.provider.die_before_first_byte = True
    for _ in range(FAILURES + 2):
        _, _, headers = await gateway.post(CHAT, ASKED)
    sent = parts.asked[2]
    shown = await explained(gateway, headers)
    assert (shown["service"]["withheld"], shown["service"]["provider"]) == ("paused", "")
    provider = gateway.gateway.services.names()[NAME].provider
    assert provider is not None
    assert provider.unready(provider._paused_until_s) == ""
    parts.provider.die_before_first_byte = False
    provider._paused_until_s = 0.0
    status, _, _ = await gateway.post(CHAT, ASKED)
    assert (status, parts.asked[2]) == (200, sent + 1)


async def test_without_its_key_a_provider_gets_nothing(
    parts: Parts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(KEY_VARIABLE)
    async with serving(parts.snapshot(), tmp_path) as gateway:
        await lose(gateway, parts.large, parts.small)
        status, _, headers = await gateway.post(CHAT, ASKED)
        assert (status, parts.asked[2]) == (429, 0)
        assert (await explained(gateway, headers))["service"]["withheld"] == "no_key"


async def test_a_key_file_is_used(parts: Parts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(KEY_VARIABLE)
    (tmp_path / "key").write_text("sk-in-a-file\n")
    monkeypatch.setenv(f"{KEY_VARIABLE}_FILE", str(tmp_path / "key"))
    async with serving(parts.snapshot(), tmp_path) as gateway:
        await lose(gateway, parts.large, parts.small)
        assert (await gateway.post(CHAT, ASKED))[0] == 200
        assert parts.provider.headers[0]["authorization"] == "Bearer sk-in-a-file"


async def test_sovereignty_rules_withhold_requests_of_a_tenant_from_the_provider(parts: Parts, tmp_path: Path) -> None:
    rule = SovereigntyRule(name="clinic stays", tenants=("tenant-a",), allow=False)
    shot = replace(parts.snapshot(), sovereignty=SovereigntyDocument(rules=(rule,)))
    async with serving(shot, tmp_path) as gateway:
        await lose(gateway, parts.large, parts.small)
        status, _, headers = await gateway.post(CHAT, ASKED)
        assert (status, parts.asked[2]) == (429, 0)
        assert (await explained(gateway, headers))["service"]["withheld"] == "sovereignty: clinic stays"
        assert (await gateway.post(CHAT, ASKED, key=OTHER_KEY))[0] == 200


async def test_a_rejection_by_admission_goes_to_the_next_pool(parts: Parts, tmp_path: Path) -> None:
    shot = parts.snapshot()
    strict = RoutingPolicy(ttft_slo_s=0.001, admission=AdmissionDocument(mode="early"))
    pools = (replace(shot.pools[0], policy=strict), shot.pools[1])
    async with serving(replace(shot, pools=pools), tmp_path) as gateway:
        status, _, headers = await gateway.post(
            CHAT, {**ASKED, "messages": [{"role": "user", "content": "x" * 90_000}]}
        )
        shown = await explained(gateway, headers)
        assert (status, shown["decision"]["pool_id"]) == (200, "small")
        assert shown["service"]["tried"][0][0] == "large"
        assert shown["service"]["tried"][0][1] in ("infeasible", "prefill_overload")


async def test_a_pool_that_would_begin_too_late_is_left_out_unless_nothing_else_serves(
    gateway: ServedGateway, parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    for pool in gateway.gateway.pools.values():
        monkeypatch.setattr(pool.router, "least_wait_s", lambda now: 1e6)
    status, _, headers = await gateway.post(CHAT, ASKED)
    assert (status, parts.asked) == (200, (0, 0, 1))
    assert (await explained(gateway, headers))["service"]["tried"] == [["large", "late"], ["small", "late"]]
    parts.provider.status = 500
    status, _, headers = await gateway.post(CHAT, ASKED)
    assert (status, parts.asked) == (200, (1, 0, 2))
    shown = await explained(gateway, headers)
    assert (shown["decision"]["engine_id"], shown["service"]["status"]) == ("engine-0", 500)


async def test_busy_engines_of_one_pool_give_the_request_to_the_next(gateway: ServedGateway, parts: Parts) -> None:
    parts.large.status = 429
    status, _, headers = await gateway.post(CHAT, ASKED)
    assert (status, parts.asked) == (200, (1, 1, 0))
    assert (await explained(gateway, headers))["service"]["tried"] == [["large", "engine_busy"]]


async def test_a_fault_of_the_request_goes_nowhere_else(gateway: ServedGateway, parts: Parts) -> None:
    parts.large.status = 400
    assert (await gateway.post(CHAT, ASKED))[0] == 400
    assert parts.asked == (1, 0, 0)


async def test_paths_that_are_not_of_openai_never_reach_the_provider(gateway: ServedGateway, parts: Parts) -> None:
    await lose(gateway, parts.large, parts.small)
    status, body, headers = await gateway.post("/v1/messages", {**ASKED, "max_tokens": 5})
    assert (status, body["error"]["code"], parts.asked[2]) == (429, "wait_expired", 0)
    assert (await explained(gateway, headers))["service"]["withheld"] == "path"


async def test_models_lists_services_and_aliases_that_the_key_may_use(parts: Parts, tmp_path: Path) -> None:
    shot = parts.snapshot()
    small_only = replace(shot.api_keys[1], served_models=(SMALL,))
    async with serving(replace(shot, api_keys=(shot.api_keys[0], small_only)), tmp_path) as gateway:
        _, listing = await gateway.get("/v1/models")
        assert [card["id"] for card in listing["data"]] == [NAME, ALIAS, LARGE, SMALL]
        _, listing = await gateway.get("/v1/models", key=OTHER_KEY)
        assert [card["id"] for card in listing["data"]] == [NAME, ALIAS, SMALL]
        await gateway.post(CHAT, ASKED, key=OTHER_KEY)
        assert parts.asked == (0, 1, 0)
        await lose(gateway, parts.large, parts.small)
        assert (await gateway.post(CHAT, ASKED, key=OTHER_KEY))[0] == 429
        assert parts.asked[2] == 0, "a key of one model may not use the provider"


async def test_a_service_can_have_the_name_of_a_served_model(parts: Parts, tmp_path: Path) -> None:
    shot = parts.snapshot()
    service = replace(shot.services[0], name=LARGE, aliases=(), pools=("large",))
    async with serving(replace(shot, services=(service,)), tmp_path) as gateway:
        assert (await gateway.post(CHAT, {**ASKED, "model": LARGE}))[0] == 200
        await lose(gateway, parts.large)
        assert (await gateway.post(CHAT, {**ASKED, "model": LARGE}))[0] == 200
        assert parts.asked == (1, 0, 1)


async def test_a_decision_for_a_service_names_the_model_for_the_engine(gateway: ServedGateway, parts: Parts) -> None:
    status, answer, _ = await gateway.post("/api/v1/route", {"model": ALIAS, "token_ids": [1] * 64, "wait": False})
    assert (status, answer["engine"]["id"], answer["body"]) == (200, "engine-0", {"model": LARGE})
    await lose(gateway, parts.large)
    status, answer, _ = await gateway.post("/api/v1/route", {"model": ALIAS, "token_ids": [1] * 64, "wait": False})
    assert (status, answer["engine"]["id"], answer["body"]) == (200, "engine-1", {"model": SMALL})


async def test_the_request_log_keeps_each_answer_of_the_provider_and_recordings_count_it_as_rejected(
    parts: Parts, tmp_path: Path
) -> None:
    settings = GatewaySettings(probe_interval_s=0.1, request_interval_s=60.0, decisions_kept_per_s=0.0)
    async with serving(parts.snapshot(), tmp_path, gateway_settings=settings) as gateway:
        batches: list[RequestBatch] = []
        gateway.gateway._bus.subscribe(TOPIC, lambda _topic, value: batches.append(decode_batch(value)))
        await lose(gateway, parts.large, parts.small)
        await gateway.post(CHAT, ASKED)
        await gateway.gateway.requests.flush()
    (stored,) = [decision for batch in batches for decision in decode_decisions(batch.decisions)]
    assert (stored.outcome, stored.share, stored.decision.engine_id) == ("completed", 1.0, "")
    assert stored.service is not None
    assert stored.service.cost == pytest.approx(PROVIDER_COST)
    (row,) = [row for batch in batches for row in decode_rows(batch.traffic)]
    assert (row.outcome, row.output_tokens, row.first_token_after_s) == ("rejected", None, None)


@pytest.mark.parametrize("answer", [b'{"error": {"message": "no", "code": 500}}', b"not JSON", "plain text"])
async def test_an_answer_that_is_none_counts_as_a_failure(
    gateway: ServedGateway, parts: Parts, answer: bytes | str
) -> None:
    await lose(gateway, parts.large, parts.small)
    parts.provider.scripts["/v1/responses"] = answer
    for _ in range(FAILURES):
        status, body, _ = await gateway.post("/v1/responses", {"model": ALIAS, "input": "hi"})
        assert (status, body["error"]["code"]) == (503, "no_engine")
    provider = gateway.gateway.services.names()[NAME].provider
    assert provider is not None
    assert provider.unready(provider._paused_until_s - 0.1) == "paused"


async def test_an_error_event_inside_the_providers_stream_fails_the_request(
    gateway: ServedGateway, parts: Parts
) -> None:
    await lose(gateway, parts.large, parts.small)
    events = [
        b'data: {"type": "response.output_text.delta", "delta": "Hel"}\n\n',
        b'data: {"type": "error", "error": {"message": "no", "code": 500}}\n\n',
    ]
    parts.provider.scripts["/v1/responses"] = events
    parts.provider.goes_on.clear()
    body = {"model": ALIAS, "input": "hi", "stream": True}
    headers = {"authorization": f"Bearer {KEY}"}
    async with gateway.client.post(f"{gateway.url}/v1/responses", json=body, headers=headers) as response:
        assert await response.content.readuntil(b"\n\n") == events[0]
        parts.provider.goes_on.set()
        assert await response.read() == events[1]
        shown = await explained(gateway, {"x-headway-decision": response.headers["x-headway-decision"]})
    assert (shown["outcome"]["state"], shown["service"]["cost"]) == ("failed", None)
