"""Headers forwarded to another region: all that a gateway acts on, and no credentials."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from typing_extensions import override

from gateway.app import AppSettings
from gateway.contracts.snapshot import ApiKeyEntry, PoolEntry
from gateway.pools.engines.model_names import ModelNames
from gateway.pools.pool.live_pool import LivePool
from gateway.proxy.api_call import ApiCall
from gateway.proxy.forwarded_request import forwarded_request
from gateway.proxy.region_relay import passed_on
from gateway.proxy.request_fields import request_of
from gateway.requests.caller_facts import CLIENT_HEADERS, facts_of
from gateway.requests.formats.endpoints import BY_PATH
from gateway.requests.gateway_request import GatewayRequest
from gateway.server.http.http_exchange import Exchange
from routing.policy.admission_document import SloClass
from routing.policy.policy_document import RoutingPolicy
from tests.gateway.peers.regions.three_regions import ThreeRegions, three_regions
from tests.gateway.proxy.test_tracing import PARENT, TRACE, TRACEPARENT, Receiver, receiver
from tests.gateway.served_gateway import MODEL
from tests.patience import PATIENCE_S

CHAT = BY_PATH["/v1/chat/completions"]
BODY: dict[str, Any] = {"model": MODEL, "messages": [{"role": "user", "content": "Hello"}]}
__all__ = ["receiver"]
POLICY = RoutingPolicy(slo_classes={"batch": SloClass()})
ENTRY = PoolEntry(pool_id="p", name="p", region="us", served_model=MODEL, policy=POLICY)
POOL = cast("LivePool", SimpleNamespace(entry=ENTRY, one_tenant=True, names=ModelNames()))
CALLER = ApiKeyEntry(key_id="k", sha256="", tenant_id="t")


class Noting(dict[bytes, bytes]):
    """Headers that record which of them were read."""

    def __init__(self, headers: dict[bytes, bytes]) -> None:
        super().__init__(headers)
        self.read: set[bytes] = set()

    @override
    def get(self, name: bytes, default: Any = None) -> Any:
        self.read.add(name)
        return super().get(name, default)


def read(headers: dict[bytes, bytes]) -> GatewayRequest:
    """Read a request as the proxy does."""
    head = SimpleNamespace(headers=headers, client_request_id=headers.get(b"x-request-id", b"").decode())
    exchange = cast("Exchange", SimpleNamespace(head=head))
    forwarded_request(CHAT, b"{}", BODY, headers, request_id="r", salt="")
    call = ApiCall(
        exchange=exchange, endpoint=CHAT, caller=CALLER, decision_id="r", original=b"{}", body=BODY,
        facts=facts_of(headers, BODY), arrived_s=0.0,
    )  # fmt: skip
    return request_of(call, POOL, None)


def test_every_header_that_gateways_act_on_is_forwarded() -> None:
    noting = Noting(dict.fromkeys((b"session-id", b"thread-id"), b"s"))
    read(noting)
    assert {b"x-workflow-id", b"x-session-id", b"x-headway-slo-class", b"thread-id"} <= noting.read
    noting.read |= {*CLIENT_HEADERS}
    # Those of proxies that ask for decisions have no meaning on the gateway's own way.
    noting.read -= {b"x-headway-door", b"x-headway-client-request-id"}
    sent = passed_on(dict.fromkeys(noting.read, b"1"))
    assert {name.decode() for name in noting.read} <= sent.keys()


def test_the_other_region_parses_the_same_request() -> None:
    headers = {
        b"x-agent": b"planner",
        b"x-workflow-id": b"w7",
        b"x-headway-ttft-slo-ms": b"900",
        b"x-llm-d-slo-tpot-ms": b"40",
        b"x-headway-slo-class": b"batch",
    }
    there = {name.encode(): value.encode() for name, value in passed_on(headers).items()}
    asked = read(there)
    assert asked == read(headers)
    assert (asked.agent, asked.workflow_id, asked.session_id) == ("planner", "w7", "w7/planner")
    assert (asked.ttft_slo_s, asked.tpot_slo_s, asked.slo_class) == (0.9, 0.04, "batch")


def test_credentials_and_internal_headers_are_not_forwarded() -> None:
    names = (b"authorization", b"x-api-key", b"cookie", b"x-forwarded-for", b"x-headway-peer-proof")
    assert passed_on(dict.fromkeys(names, b"1")).keys() == {"accept-encoding", "user-agent"}


@pytest.fixture
async def regions(tmp_path: Path) -> AsyncIterator[ThreeRegions]:
    async with three_regions(tmp_path) as running:
        yield running


async def test_spans_of_the_other_region_continue_those_of_the_first_gateway(
    receiver: Receiver, tmp_path: Path
) -> None:
    async with three_regions(tmp_path, settings=AppSettings(tracing=receiver.tracing)) as regions:
        regions.engines["us"].stall = True
        stays = asyncio.create_task(regions.chat("us", "stays"))
        async with asyncio.timeout(PATIENCE_S):
            await regions.engines["us"].received.wait()
            headers = {"traceparent": TRACEPARENT}
            assert (await regions.gateways["us"].post("/v1/chat/completions", BODY, headers=headers))[0] == 200
        stays.cancel()
        await asyncio.gather(stays, return_exceptions=True)
    roots = [span for span in await receiver.spans() if span.trace_id.hex() == TRACE]
    (first,) = [root for root in roots if root.parent_span_id.hex() == PARENT]
    continued = [root.name for root in roots if root.parent_span_id == first.span_id]
    assert "POST /v1/chat/completions" in continued


async def test_a_forwarded_request_keeps_its_agent_in_the_other_region(regions: ThreeRegions) -> None:
    regions.engines["us"].stall = True
    stays = asyncio.create_task(regions.chat("us", "stays"))
    async with asyncio.timeout(PATIENCE_S):
        await regions.engines["us"].received.wait()
        headers = {"x-agent": "planner", "x-workflow-id": "w7", "x-request-id": "job-7"}
        status, _, response_headers = await regions.gateways["us"].post("/v1/chat/completions", BODY, headers=headers)
        assert status == 200
    name = response_headers["x-headway-decision"]
    hop = (await regions.explain("us", name))["hop"]
    record = regions.gateways[hop["destination"]].app.recent.get(name)
    assert record is not None
    assert (record.agent, record.workflow_id, record.session_id) == ("planner", "w7", "w7/planner")
    assert record.client_request_id == "job-7"
    stays.cancel()
    await asyncio.gather(stays, return_exceptions=True)
