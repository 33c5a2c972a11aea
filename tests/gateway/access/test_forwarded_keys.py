"""A trusted proxy decides by the API keys of its clients, and reports on their behalf. Others cannot."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
import pytest
from multidict import CIMultiDict

from gateway.contracts.snapshot import ApiKeyEntry, encode_snapshot
from gateway.gateway import SNAPSHOT_TOPIC
from gateway.pools.pool.recent_decisions import DecisionRecord
from routing.policy.admission_document import SloClass
from routing.policy.policy_document import RoutingPolicy
from tests.gateway.scripted_engine import ScriptedEngine
from tests.gateway.served_gateway import KEY, MODEL, OTHER_KEY, ServedGateway, served
from tests.patience import until

ROUTE, BATCH = "/api/v1/route", "/api/v1/route/batch"
DOOR, STRICT, CLIENT = "hw_door", "hw_strict_door", "hw_client"
POLICY = RoutingPolicy(slo_classes={"gold": SloClass(ttft_slo_s=1.5)}, ttft_slo_s=4.0)
FAST = {"model": MODEL, "block_hashes": [1, 2], "wait": False}
SLOW = {"model": MODEL, "prompt": "x" * 100}


def entry(key: str, tenant: str, *scopes: str, **fields: Any) -> ApiKeyEntry:
    digest = sha256(key.encode()).hexdigest()
    return ApiKeyEntry(key_id=key, sha256=digest, tenant_id=tenant, scopes=scopes, **fields)


DOORS_KEYS = (
    entry(DOOR, "edge", "route", "forward"),
    entry(STRICT, "edge", "forward"),
    entry(CLIENT, "customer", "infer", slo_class="gold", priority_ceiling=5),
    entry("hw_router", "customer", "infer", "route"),
    entry("hw_limited", "customer", "infer", rate_per_min=1),
    entry("hw_other_model", "customer", "infer", served_models=("another",)),
    entry("hw_route_only", "customer", "route"),
    entry("hw_expired", "customer", "infer", expires_at=1.0),
)


@pytest.fixture
async def gateway(tmp_path: Path) -> AsyncIterator[ServedGateway]:
    async with ScriptedEngine() as engine, served([engine.url], tmp_path, policy=POLICY) as gateway:
        before = gateway.gateway.snapshot
        assert before is not None
        keys = (*before.api_keys, *DOORS_KEYS)
        changed = msgspec.structs.replace(before, version=2, published_at=time.time(), api_keys=keys)
        gateway.gateway._bus.publish(SNAPSHOT_TOPIC, encode_snapshot(changed))
        await until(lambda: gateway.gateway.snapshot is not None and gateway.gateway.snapshot.version == 2)
        yield gateway


async def ask(
    gateway: ServedGateway, client: str | None, *, door: str = DOOR, body: Any = FAST, path: str = ROUTE
) -> tuple[int, Any, dict[str, str]]:
    headers = {} if client is None else {"x-headway-client-authorization": f"Bearer {client}"}
    return await gateway.post(path, body, key=door, headers=headers)


def record_of(gateway: ServedGateway, headers: dict[str, str]) -> DecisionRecord:
    record = gateway.app.recent.get(headers["x-headway-decision"])
    assert record is not None
    return record


@pytest.mark.parametrize("body", [FAST, SLOW])
async def test_the_clients_key_gives_tenant_class_and_ceiling(gateway: ServedGateway, body: Any) -> None:
    for _ in range(2):  # the second one has a known head
        status, answer, headers = await ask(gateway, CLIENT, body={**body, "priority": 1})
        assert (status, answer["ttft_slo_s"], answer["body"]["priority"]) == (200, 1.5, 5)
        record = record_of(gateway, headers)
        assert (record.tenant_id, record.slo_class, record.door) == ("customer", "gold", "api")
        assert record.reporting_tenant == "edge"


@pytest.mark.parametrize("body", [FAST, SLOW])
@pytest.mark.parametrize(
    ("client", "status", "code"),
    [
        ("hw_unknown", 401, "invalid_api_key"),
        ("secret-of-another-system", 401, "invalid_api_key"),
        ("hw_expired", 401, "expired_api_key"),
        ("hw_route_only", 403, "missing_scope"),
        ("hw_other_model", 404, "model_not_found"),
    ],
)
async def test_a_clients_key_is_rejected_as_at_the_proxy(
    gateway: ServedGateway, client: str, status: int, code: str, body: Any
) -> None:
    answered, answer, headers = await ask(gateway, client, body=body)
    assert (answered, answer["error"]["code"]) == (status, code)
    chat = {"model": MODEL, "messages": [{"role": "user", "content": "hi"}]}
    proxied, error, proxied_headers = await gateway.post("/v1/chat/completions", chat, key=client)
    assert (proxied, error) == (answered, answer)
    assert headers.get("www-authenticate") == proxied_headers.get("www-authenticate")


async def test_the_clients_limits_apply_and_other_clients_are_unaffected(gateway: ServedGateway) -> None:
    assert (await ask(gateway, "hw_limited"))[0] == 200
    status, answer, headers = await ask(gateway, "hw_limited")
    assert (status, answer["error"]["code"]) == (429, "key_rate_limit")
    assert int(headers["retry-after"]) >= 1
    assert (await ask(gateway, CLIENT))[0] == 200


async def test_without_a_clients_key_the_door_decides_for_itself_if_it_may(gateway: ServedGateway) -> None:
    status, _, headers = await ask(gateway, None)
    assert (status, record_of(gateway, headers).tenant_id) == (200, "edge")
    assert record_of(gateway, headers).reporting_tenant == ""
    for body in (FAST, SLOW):
        status, answer, headers = await ask(gateway, None, door=STRICT, body=body)
        assert (status, answer["error"]["code"], headers["www-authenticate"]) == (401, "missing_api_key", "Bearer")
    status, _, headers = await ask(gateway, CLIENT, door=STRICT)
    assert (status, record_of(gateway, headers).tenant_id) == (200, "customer")


async def test_a_key_without_the_scope_acts_only_for_itself(gateway: ServedGateway) -> None:
    status, _, headers = await ask(gateway, CLIENT, door=OTHER_KEY)
    assert (status, record_of(gateway, headers).tenant_id) == (200, "tenant-b")
    assert (await ask(gateway, "hw_unknown", door=OTHER_KEY))[0] == 200
    assert (await ask(gateway, CLIENT, door=CLIENT))[1]["error"]["code"] == "missing_scope"


async def test_a_batch_is_decided_and_paid_by_the_client(gateway: ServedGateway) -> None:
    status, answer, _ = await ask(gateway, CLIENT, path=BATCH, body=[FAST, FAST])
    assert (status, len(answer["decisions"])) == (200, 2)
    record = gateway.app.recent.get(answer["decisions"][0]["decision_id"])
    assert record is not None and record.tenant_id == "customer"
    status, answer, _ = await ask(gateway, "hw_limited", path=BATCH, body=[FAST, FAST])
    assert (status, answer["error"]["code"]) == (429, "key_rate_limit")


async def test_the_list_of_models_is_the_clients(gateway: ServedGateway) -> None:
    async def models(client: str) -> list[str]:
        headers = {"authorization": f"Bearer {STRICT}", "x-headway-client-authorization": f"Bearer {client}"}
        async with gateway.client.get(gateway.url + "/v1/models", headers=headers) as response:
            return [card["id"] for card in (await response.json()).get("data", [])]

    assert await models(CLIENT) == [MODEL]
    assert await models("hw_other_model") == []
    assert await models("hw_unknown") == []


async def test_only_the_door_reports_what_it_decided_for_a_client(gateway: ServedGateway) -> None:
    _, answer, headers = await ask(gateway, CLIENT)
    name, record = answer["decision_id"], record_of(gateway, headers)
    usage = {"prompt_tokens": 32, "cached_tokens": 16, "output_tokens": 7}
    assert (await gateway.report(name, "complete", usage, key=OTHER_KEY))[0] == 404
    # The client knows the id from its answer, and may ask, but its word does not end the request.
    status, answer, _ = await gateway.report(name, "fail", key="hw_router")
    assert (status, answer["outcome"], record.outcome) == (200, "", "")
    assert (await gateway.get(f"/api/v1/explain/{name}", key=CLIENT))[1]["error"]["code"] == "shared_caches"
    assert (await gateway.report(name, "first_token", key=STRICT))[0] == 200
    status, answer, _ = await gateway.report(name, "complete", usage, key=STRICT)
    assert (status, answer["outcome"]) == (200, "completed")
    assert (record.cached_tokens, record.output_tokens, record.engine_prompt_tokens) == (16, 7, 32)


async def test_a_doors_reports_are_trusted_and_make_its_key_a_reporting_one(gateway: ServedGateway) -> None:
    _, answer, headers = await ask(gateway, CLIENT)
    assert not record_of(gateway, headers).tracked
    await gateway.report(answer["decision_id"], "complete", key=DOOR)
    _, _, headers = await ask(gateway, CLIENT)
    record = record_of(gateway, headers)
    assert (record.tracked, record.reporter, record.witness) == (True, "", "customer")
    # One tenant's own reports remain its word.
    _, answer, headers = await gateway.post(ROUTE, FAST, key=OTHER_KEY)
    await gateway.report(answer["decision_id"], "complete", key=OTHER_KEY)
    _, _, headers = await gateway.post(ROUTE, FAST, key=OTHER_KEY)
    assert record_of(gateway, headers).reporter == "tenant-b"


async def test_a_revoked_client_key_is_rejected_although_its_head_is_known(gateway: ServedGateway) -> None:
    assert (await ask(gateway, CLIENT))[0] == 200
    before = gateway.gateway.snapshot
    assert before is not None
    keys = tuple(key for key in before.api_keys if key.key_id != CLIENT)
    changed = msgspec.structs.replace(before, version=3, published_at=time.time(), api_keys=keys)
    gateway.gateway._bus.publish(SNAPSHOT_TOPIC, encode_snapshot(changed))
    await until(lambda: gateway.gateway.snapshot is not None and gateway.gateway.snapshot.version == 3)
    assert (await ask(gateway, CLIENT))[0] == 401


@pytest.mark.parametrize("body", [{**FAST, "slo_class": "none"}, {**SLOW, "slo_class": "none"}])
async def test_a_rejection_carries_the_decisions_id(gateway: ServedGateway, body: Any) -> None:
    status, answer, headers = await gateway.post(ROUTE, body, key=KEY)
    assert (status, answer["error"]["code"]) == (400, "unknown_slo_class")
    assert headers["x-headway-decision"] == headers["x-request-id"]


@pytest.mark.parametrize("wait", ["?wait=false", ""])
async def test_a_rejection_has_the_form_of_the_clients_api(gateway: ServedGateway, wait: str) -> None:
    body = {"model": MODEL, "messages": [{"role": "user", "content": "hi"}], "max_tokens": 1, "slo_class": "none"}
    paths = ("/v1/messages?beta=true", "/v1/chat/completions")
    answers = [await gateway.post(ROUTE + wait, body, headers={"x-original-uri": path}) for path in paths]
    assert [answer.get("type") for _, answer, _ in answers] == ["error", None]
    assert [answer["error"]["code"] for _, answer, _ in answers] == ["unknown_slo_class"] * 2


async def test_a_repeated_header_of_the_clients_key_is_rejected(gateway: ServedGateway) -> None:
    headers = CIMultiDict({"authorization": f"Bearer {DOOR}"})
    for client in (CLIENT, "hw_limited"):
        headers.add("x-headway-client-authorization", f"Bearer {client}")
    async with gateway.client.post(gateway.url + ROUTE, json=FAST, headers=headers) as response:
        assert (response.status, (await response.json())["error"]["code"]) == (400, "repeated_header")
