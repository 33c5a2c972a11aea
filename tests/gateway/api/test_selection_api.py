"""Clients of Dynamo's selection service select engines and report reservations with their own calls."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.contracts.worker_ids import worker_id
from tests.gateway.scripted_engine import ScriptedEngine
from tests.gateway.served_gateway import KEY, MODEL, OTHER_KEY, ServedGateway

ASKED: dict[str, Any] = {
    "selection_id": "select-123", "model_name": MODEL, "block_hashes": [11, 2**64 - 1, 13, 14], "isl_tokens": 64,
    "sequence_hashes": [21, 22, 23, 24], "routing_group": "default",
}  # fmt: skip


async def test_a_selection_has_dynamos_shape_and_a_repetition_gets_the_same(
    gateway: ServedGateway, engine: ScriptedEngine
) -> None:
    status, first, headers = await gateway.post("/select", ASKED)
    assert status == 200
    assert first == {
        "selection_id": "select-123", "model_name": MODEL, "routing_group": "default",
        "worker_id": worker_id("engine-0", "e0"), "dp_rank": 0, "endpoint": engine.url, "block_size": 16,
        "overlap": {"longest_matched": 0, "gpu": 0, "dp": {"0": 0}, "cpu": 0, "disk": 0},
        "effective_prefill_tokens": 64,
    }  # fmt: skip
    assert len(headers["x-headway-decision"]) == 36
    assert not gateway.is_idle()
    _, again, _ = await gateway.post("/select_and_reserve", ASKED)
    assert again == first
    assert len(gateway.pool.router.reservations) == 1


async def test_a_reservation_lives_until_it_is_deleted(gateway: ServedGateway) -> None:
    await gateway.post("/select_and_reserve", ASKED)
    status, answer, _ = await gateway.post("/reservations", {"selection_id": "select-123", "worker_id": 1})
    assert (status, answer) == (201, {"selection_id": "select-123"})
    for verb, body in (("prefill_complete", None), ("output_block", {"decay_fraction": 0.5})):
        assert (await gateway.post(f"/reservations/select-123/{verb}", body))[0] == 200
    assert not gateway.is_idle()
    assert await delete(gateway, "select-123") == 200
    assert gateway.is_idle()
    assert await delete(gateway, "select-123") == 200, "as often as the client likes"


async def test_an_id_that_the_gateway_chose_names_the_decision(gateway: ServedGateway) -> None:
    asked = {"token_ids": list(range(64))}
    _, first, headers = await gateway.post("/select_and_reserve", asked)
    assert first["selection_id"] == headers["x-headway-decision"]
    assert (first["model_name"], first["effective_prefill_tokens"]) == (MODEL, 64)
    assert (await gateway.post(f"/reservations/{first['selection_id']}/prefill_complete"))[0] == 200
    assert await delete(gateway, first["selection_id"]) == 200
    _, explained = await gateway.get(f"/api/v1/explain/{first['selection_id']}")
    assert explained["outcome"]["state"] == "completed"
    assert explained["outcome"]["first_token_after_s"] is not None


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"model_name": "unknown", "block_hashes": [1]}, 404),
        ({"model_name": MODEL}, 400),
        ({**ASKED, "routing_group": "other"}, 400),
        ({**ASKED, "block_hashes": ["x"]}, 400),
        ({**ASKED, "block_hashes": [2**64]}, 400),
        ({**ASKED, "selection_id": ""}, 400),
        ([1], 400),
    ],
)
async def test_bad_selections_are_rejected(gateway: ServedGateway, body: Any, status: int) -> None:
    assert (await gateway.post("/select", body))[0] == status
    assert gateway.is_idle()


async def test_selections_belong_to_their_key(gateway: ServedGateway) -> None:
    await gateway.post("/select_and_reserve", ASKED)
    assert (await gateway.post("/reservations", {"selection_id": "select-123"}, key=OTHER_KEY))[0] == 404
    assert await delete(gateway, "select-123", OTHER_KEY) == 404
    assert (await gateway.post("/select", ASKED, key=None))[0] == 401
    assert (await gateway.post("/reservations/select-123/unknown"))[0] == 404
    assert not gateway.is_idle()


async def delete(gateway: ServedGateway, selection_id: str, key: str = KEY) -> int:
    headers = {"authorization": f"Bearer {key}"}
    async with gateway.client.delete(f"{gateway.url}/reservations/{selection_id}", headers=headers) as response:
        return response.status
