"""Gateways with different secrets during a rotation share a pool but never each other's block keys."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec
import pytest

from gateway.gateway import Gateway
from gateway.pool.live_pool import LivePool
from kvstore.keys.keyring import Keyring
from routing.chain.owner_messages import Took, sent
from routing.values.decision import ALONE, OTHER_KEYS, Decision, Dispatched
from routing.values.observation import Completed
from tests.gateway.live_gateway import engine_entry, request, snapshot
from tests.gateway.owners.shared_fleet import Clock, fleet, owners, ownership, shared, split
from tests.gateway.scripted_engine import ScriptedEngine

KEYS = (11, 12, 13, 14)
"""The same numbers at both gateways: with other seeds, they would identify other prompts."""
WITHIN = {"a": (b"before", b"after"), "b": (b"after", b"before")}
SAME = {"a": (b"after", b"before"), "b": (b"after", b"")}


@asynccontextmanager
async def two(tmp_path: Path, secrets: dict[str, tuple[bytes, bytes]]) -> AsyncIterator[tuple[Clock, list[Gateway]]]:
    clock, keyrings = Clock(), {name: Keyring.of(*held) for name, held in secrets.items()}
    async with ScriptedEngine() as one, ScriptedEngine() as other:
        topology = snapshot([engine_entry("e1", one.url), engine_entry("e2", other.url)], key_source="approximate")
        async with fleet(tmp_path, topology, clock=clock, keyrings=keyrings) as gateways:
            yield clock, gateways


def pool(gateway: Gateway) -> LivePool:
    return gateway.pools["pool"]


@pytest.mark.parametrize(("secrets", "finds"), [(WITHIN, False), (SAME, True)], ids=["another secret", "the same"])
async def test_an_owner_with_another_secret_matches_and_stores_no_keys(
    tmp_path: Path, secrets: dict[str, tuple[bytes, bytes]], finds: bool
) -> None:
    async with two(tmp_path, secrets) as (clock, gateways):
        owner, (other,) = split(gateways)
        pool(owner).router.blocks_stored("e1", KEYS)
        asked = request(other.new_id(), KEYS, 9)
        outcome = await pool(other).decide(asked, hold=True)
        assert isinstance(outcome, Dispatched)
        decision = outcome.decision
        assert (decision.hit_tokens > 0) == finds
        # Only a hit that was searched for is evidence about the engine's index.
        assert decision.knew_blocks == finds
        assert decision.decided_by.endswith(OTHER_KEYS) != finds
        assert decision.decided_by.startswith(f"{owner.settings.peers.name}, epoch 1")  # type: ignore[union-attr]
        reserved = pool(owner).router.reservations.get(asked.request_id)
        assert reserved is not None
        assert (reserved.request.keys, reserved.request.prompt_tokens) == (KEYS if finds else (), 9)
        # Its own index, and the load of both, depend on the gateway's own knowledge.
        ours = pool(other).router.reservations.get(asked.request_id)
        assert ours is not None
        assert ours.request.keys == KEYS
        pool(other).observe(Completed(asked.request_id, 8))
        await clock.until(lambda: len(pool(owner).router.reservations) == 0)


@pytest.mark.parametrize(("secrets", "keys"), [(WITHIN, ()), (SAME, KEYS)], ids=["another secret", "the same"])
async def test_requests_of_a_gateway_with_another_secret_are_taken_over_by_length(
    tmp_path: Path, secrets: dict[str, tuple[bytes, bytes]], keys: tuple[int, ...]
) -> None:
    async with two(tmp_path, secrets) as (clock, gateways):
        owner, (other,) = split(gateways)
        taken = request(other.new_id(), KEYS, 9)
        took = Took("pool", ownership(other).seen, sent(taken, clock()), "e1", False)
        assert shared(other).decider.epoch is not None
        pool(other).driver.router.adopt(taken, "e1", time.monotonic())
        owners(other).send(owner.new_id.tag, took)
        await clock.until(lambda: taken.request_id in pool(owner).router.reservations.by_id)
        reserved = pool(owner).router.reservations.get(taken.request_id)
        assert reserved is not None
        assert (reserved.request.keys, reserved.request.prompt_tokens) == (keys, 9)


def test_only_decisions_by_an_owner_with_another_secret_ignore_the_blocks() -> None:
    decision = msgspec.convert(
        {
            "decision_id": "d", "pool_id": "p", "engine_id": "e", "incarnation": 1, "placement": "p", "order": "o",
            "policy_version": 1, "reason": "r", "prompt_tokens": 1, "hit_tokens": 0, "wait_s": 0, "compute_s": 0,
            "decided_s": 0,
        },
        Decision,
    )  # fmt: skip
    for decided_by, knew in (("", True), (ALONE, True), ("a, epoch 3", True), (f"a, epoch 3{OTHER_KEYS}", False)):
        assert msgspec.structs.replace(decision, decided_by=decided_by).knew_blocks == knew
