"""Feedback, explanations and named repetitions get the same response from whichever gateway a balancer chooses."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from gateway.api.idempotent_requests import RepeatedRequests
from gateway.bus.bus import Bus, InProcessBus
from gateway.bus.redis_bus import RedisBus
from gateway.server.http.request_head import TaggedIds, tag_of
from kvstore.keys.keyring import Keyring
from tests.gateway.scripted_engine import ScriptedEngine
from tests.gateway.served_gateway import KEYRING, MODEL, OTHER_KEY, ServedGateway, served
from tests.patience import until
from tests.private_redis import PrivateRedis, patient_bus, private_redis

ASKED = {"model": MODEL, "token_ids": list(range(160)), "wait": False}
MADE = "01a20342-132b-74e0-9e18-8620972316c6"
Two = tuple[ServedGateway, ServedGateway]


@pytest.fixture(scope="module")
def redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrivateRedis]:
    with private_redis(tmp_path_factory.mktemp("redis")) as running:
        yield running


@pytest.fixture
def shared(redis: PrivateRedis) -> Iterator[Callable[[], Bus]]:
    """Return a factory of bus clients over Redis for one more process."""
    buses: list[RedisBus] = []

    def make() -> Bus:
        buses.append(patient_bus(redis.url, KEYRING))
        return buses[-1]

    yield make
    for bus in buses:
        bus.close()


@pytest.fixture(params=["in process", "over Redis"])
async def two(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Two]:
    # A busy machine may take its time; what ends a wait is tested by itself.
    monkeypatch.setattr("gateway.peers.links.request_claims.CLAIM_WAIT_S", 20.0)
    monkeypatch.setattr("gateway.peers.links.peer_calls.ANSWER_S", 20.0)
    if request.param == "in process":
        one_bus = other_bus = InProcessBus()
    else:
        make = request.getfixturevalue("shared")
        one_bus, other_bus = make(), make()
    async with AsyncExitStack() as stack:
        urls = [(await stack.enter_async_context(ScriptedEngine())).url for _ in range(2)]
        one = await stack.enter_async_context(served(urls, tmp_path / "one", bus=one_bus))
        other = await stack.enter_async_context(served(urls, tmp_path / "other", bus=other_bus))
        yield one, other


async def decided(gateway: ServedGateway, **more: Any) -> dict[str, Any]:
    status, answer, _ = await gateway.post("/api/v1/route", {**ASKED, **more})
    assert status == 200, answer
    return answer  # type: ignore[no-any-return]


async def test_feedback_reaches_the_gateway_that_decided(two: Two) -> None:
    one, other = two
    name = (await decided(one))["decision_id"]
    for verb, body in (("first_token", {}), ("complete", {"output_tokens": 7})):
        status, answer, headers = await other.post(f"/api/v1/requests/{name}/{verb}", body)
        assert (status, answer["decision_id"], headers["x-headway-decision"]) == (200, name, name)
    record = one.app.recent.get(name)
    assert record is not None
    assert (record.outcome, record.output_tokens) == ("completed", 7)


async def test_explanations_come_from_the_owner(two: Two) -> None:
    one, other = two
    name = (await decided(one))["decision_id"]
    at_owner, elsewhere = await one.get(f"/api/v1/explain/{name}"), await other.get(f"/api/v1/explain/{name}")
    assert elsewhere == at_owner
    assert elsewhere[0] == 200


async def test_the_owner_rejects_other_tenants_and_names_the_fault_of_a_body(two: Two) -> None:
    one, other = two
    name = (await decided(one))["decision_id"]
    for gateway in (one, other):
        assert (await gateway.get(f"/api/v1/explain/{name}", key=OTHER_KEY))[0] == 404
        assert (await gateway.post(f"/api/v1/requests/{name}/complete", {}, key=OTHER_KEY))[0] == 404
        status, answer, _ = await gateway.post(f"/api/v1/requests/{name}/complete", {"output_tokens": -1})
        assert (status, answer["error"]["param"]) == (400, "output_tokens")
    assert one.app.recent.get(name).outcome == ""  # type: ignore[union-attr]


async def test_a_named_request_has_one_response_at_all_gateways(two: Two) -> None:
    one, other = two
    first, _, again = [
        (await gateway.post("/api/v1/route", ASKED, headers={"x-request-id": "job-1"}))[1]
        for gateway in (one, other, other)
    ]
    assert again == first
    assert len(one.app.recent) + len(other.app.recent) == 1
    elsewhere = await other.post("/api/v1/route", ASKED, headers={"x-request-id": "job-1"}, key=OTHER_KEY)
    assert elsewhere[1]["decision_id"] != first["decision_id"]


@pytest.mark.parametrize("step", range(3))
@pytest.mark.parametrize("forth", [True, False])
async def test_a_named_request_has_one_response_before_and_after_each_rotation_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int, forth: bool
) -> None:
    monkeypatch.setattr("gateway.peers.links.request_claims.CLAIM_WAIT_S", 20.0)
    steps = (b"before", b""), (b"before", b"after"), (b"after", b"before"), (b"after", b"")
    bus, held = InProcessBus(), [Keyring.of(*secrets) for secrets in steps[step : step + 2]]
    async with AsyncExitStack() as stack:
        urls = [(await stack.enter_async_context(ScriptedEngine())).url]
        two = [
            await stack.enter_async_context(served(urls, tmp_path / str(at), bus=bus, keyring=keyring))
            for at, keyring in enumerate(held)
        ]
        one, other = two if forth else reversed(two)
        named = {"x-request-id": "job-1"}
        first = (await one.post("/api/v1/route", ASKED, headers=named))[1]
        assert (await other.post("/api/v1/route", ASKED, headers=named))[1]["decision_id"] == first["decision_id"]
        assert len(one.app.recent) + len(other.app.recent) == 1


async def test_a_named_batch_has_one_response_at_all_gateways(two: Two) -> None:
    one, other = two
    asked, named = [ASKED, ASKED], {"x-request-id": "jobs"}
    first = (await one.post("/api/v1/route/batch", asked, headers=named))[1]["decisions"]
    assert (await other.post("/api/v1/route/batch", asked, headers=named))[1]["decisions"] == first
    assert len({item["decision_id"] for item in first}) == 2


async def test_a_failed_named_request_is_retried_at_another_gateway(two: Two) -> None:
    one, other = two
    named = {"x-request-id": "job-2"}
    assert (await one.post("/api/v1/route", {**ASKED, "model": "unknown"}, headers=named))[0] == 404
    status, answer, _ = await other.post("/api/v1/route", ASKED, headers=named)
    assert status == 200
    assert (await one.post("/api/v1/route", ASKED, headers=named))[1]["decision_id"] == answer["decision_id"]


async def test_requests_of_a_dead_gateway_get_404_immediately_and_free_their_names(two: Two) -> None:
    one, other = two
    named = {"x-request-id": "job-3"}
    first = (await one.post("/api/v1/route", ASKED, headers=named))[1]["decision_id"]
    await one.gateway.peers.stop()
    bus = one.gateway._bus
    if isinstance(bus, RedisBus):
        bus.close()
    status, answer, _ = await other.post(f"/api/v1/requests/{first}/complete", {})
    assert (status, answer["error"]["code"]) == (404, "not_found")
    assert "has ended" in answer["error"]["message"]
    status, again, _ = await other.post("/api/v1/route", ASKED, headers=named)
    assert (status, again["decision_id"] == first) == (200, False)


async def say_nothing(_call: Any) -> None:
    """Leave a call unanswered."""


async def test_a_repetition_waits_for_the_first_request_and_takes_over_if_it_is_silent(
    two: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    one, other = two
    monkeypatch.setattr("gateway.api.route_api.RECALL_S", 0.05)
    named = {"x-request-id": "job-5"}
    placed, go_on = one.app._route_api._decide, asyncio.Event()

    async def slowly(*arguments: Any) -> Any:
        await go_on.wait()
        return await placed(*arguments)

    monkeypatch.setattr(one.app._route_api, "_decide", slowly)
    first = asyncio.create_task(one.post("/api/v1/route", ASKED, headers=named))
    await until(lambda: len(one.app._route_api._repeated) == 1)
    again = asyncio.create_task(other.post("/api/v1/route", ASKED, headers=named))
    await asyncio.sleep(0.3)
    assert not again.done()
    go_on.set()
    assert (await again)[1] == (await first)[1]
    monkeypatch.setattr(one.gateway.peers, "_answer", say_nothing)
    other.gateway.peers.answer_s = 0.05
    other.app._route_api._repeated = RepeatedRequests()
    status, new, _ = await other.post("/api/v1/route", ASKED, headers=named)
    assert (status, new["decision_id"] == (await first)[1]["decision_id"]) == (200, False)


async def test_a_silent_owner_costs_a_bounded_wait(two: Two, monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = two
    name = (await decided(one))["decision_id"]
    monkeypatch.setattr(one.gateway.peers, "_answer", say_nothing)
    other.gateway.peers.answer_s = 0.05
    status, answer, headers = await other.post(f"/api/v1/requests/{name}/complete", {})
    assert (status, answer["error"]["code"], headers["retry-after"]) == (503, "peer_unavailable", "1")


async def test_without_redis_each_gateway_answers_alone(tmp_path: Path) -> None:
    bus = RedisBus("redis://127.0.0.1:1", KEYRING)
    async with ScriptedEngine() as engine, served([engine.url], tmp_path, bus=bus) as one:
        named = {"x-request-id": "job-4"}
        first = (await one.post("/api/v1/route", ASKED, headers=named))[1]
        assert (await one.post("/api/v1/route", ASKED, headers=named))[1] == first
        assert (await one.post(f"/api/v1/requests/{first['decision_id']}/complete", {}))[0] == 200
        status, answer, _ = await one.post(f"/api/v1/requests/{TaggedIds()()}/complete", {})
        assert (status, answer["error"]["code"]) == (503, "peer_unavailable")
    bus.close()


def test_an_id_names_its_gateway_and_is_a_version_7_uuid() -> None:
    ids = TaggedIds()
    made = [ids() for _ in range(1000)]
    assert len(set(made)) == 1000
    assert {tag_of(item) for item in made} == {ids.tag}
    assert {UUID(item).version for item in made} == {7}
    assert made == sorted(made)


@pytest.mark.parametrize(
    "text", ["", "job-1", "x" * 36, MADE.upper(), MADE + "0", "../" + MADE, MADE.replace("-7", "-4")]
)
def test_foreign_ids_name_no_gateway(text: str) -> None:
    assert tag_of(text) == ""
