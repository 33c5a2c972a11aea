"""Tenants use only models granted to them, and request priorities are capped by the key."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gateway.bus.bus import InProcessBus
from gateway.contracts.snapshot import encode_snapshot
from gateway.gateway import SNAPSHOT_TOPIC
from tests.gateway.scripted_engine import ScriptedEngine
from tests.gateway.served_gateway import KEY, MODEL, OTHER_KEY, ServedGateway, served, snapshot

ROUTE = "/api/v1/route"
QUESTION = {"model": MODEL, "block_hashes": [1], "wait": False}
CHAT = {"model": MODEL, "messages": [{"role": "user", "content": "hello"}]}


@pytest.fixture
async def gateway(engine: ScriptedEngine, tmp_path: Path) -> AsyncIterator[ServedGateway]:
    made = snapshot([engine.url])
    a, b = made.api_keys
    keys = (
        msgspec.structs.replace(a, served_models=(MODEL, "another"), priority_ceiling=5),
        msgspec.structs.replace(b, served_models=("another",)),
    )
    bus = InProcessBus()
    bus.publish(SNAPSHOT_TOPIC, encode_snapshot(msgspec.structs.replace(made, api_keys=keys)))
    async with served([], tmp_path, bus=bus) as running:
        yield running


@pytest.mark.parametrize(
    ("path", "body"),
    [
        (ROUTE, QUESTION),
        (ROUTE, {**QUESTION, "wait": True}),
        ("/v1/chat/completions", CHAT),
        ("/v1/completions", {"model": MODEL, "prompt": "hello"}),
    ],
)
async def test_a_model_without_a_grant_is_reported_as_unknown(
    gateway: ServedGateway, engine: ScriptedEngine, path: str, body: dict[str, Any]
) -> None:
    assert (await gateway.post(path, body))[0] == 200
    sent = len(engine.bodies)
    status, answer, _ = await gateway.post(path, body, key=OTHER_KEY)
    unknown = (await gateway.post(path, {**body, "model": "nowhere"}, key=OTHER_KEY))[1]
    assert (status, answer["error"]["code"]) == (404, "model_not_found")
    assert answer == unknown
    assert len(engine.bodies) == sent


async def test_a_batch_rejects_each_ungranted_model_separately(gateway: ServedGateway) -> None:
    _, answer, _ = await gateway.post(ROUTE + "/batch", [QUESTION], key=OTHER_KEY)
    assert answer["decisions"][0]["error"]["code"] == "model_not_found"


async def test_only_granted_models_are_listed(gateway: ServedGateway) -> None:
    assert [card["id"] for card in (await gateway.get("/v1/models"))[1]["data"]] == [MODEL]
    assert (await gateway.get("/v1/models", key=OTHER_KEY))[1]["data"] == []
    assert (await gateway.get(f"/v1/models/{MODEL}", key=OTHER_KEY))[0] == 404


@pytest.mark.parametrize(("asked", "got"), [(-100, 5), (5, 5), (9, 9), (None, None)])
async def test_a_request_priority_is_capped_by_its_key(
    gateway: ServedGateway, engine: ScriptedEngine, asked: int | None, got: int | None
) -> None:
    wanted = {} if asked is None else {"priority": asked}
    _, answer, _ = await gateway.post(ROUTE, {**QUESTION, **wanted})
    assert answer["body"].get("priority") == got
    await gateway.post("/v1/chat/completions", {**CHAT, **wanted}, key=KEY)
    assert engine.bodies[-1].get("priority") == got
    assert {record.priority for record in gateway.app.recent._records.values()} == {got or 0}
