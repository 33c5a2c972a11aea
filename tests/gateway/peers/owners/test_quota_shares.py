"""A key's limits hold across all gateways together, whichever receives its calls."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from gateway.contracts.snapshot import ApiKeyEntry
from gateway.gateway import Gateway
from gateway.peers.owners.quota_shares import QuotaShares, shared_out, whole_slots
from gateway.server.http.openai_error import ApiError
from tests.gateway.live_gateway import engine_entry, snapshot
from tests.gateway.peers.owners.shared_fleet import Clock, fleet, kill
from tests.gateway.scripted_engine import ScriptedEngine

KEY = ApiKeyEntry(key_id="k", sha256="00" * 32, tenant_id="t", rate_per_min=600, max_in_flight=10)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
async def three(tmp_path: Path, clock: Clock) -> AsyncIterator[list[Gateway]]:
    async with ScriptedEngine() as engine:
        first = msgspec.structs.replace(snapshot([engine_entry("e1", engine.url)]), api_keys=(KEY,))
        async with fleet(tmp_path, first, "abc", clock=clock) as gateways:
            await clock.until(lambda: all(gateway.key_quotas.position[1] == 3 for gateway in gateways))
            yield gateways


def shares(gateway: Gateway) -> QuotaShares:
    assert gateway.quota_shares is not None
    return gateway.quota_shares


def calls(gateway: Gateway, clock: Clock, wanted: int) -> int:
    """Return how many of this many calls the gateway admits now."""
    passed = 0
    for _ in range(wanted):
        try:
            gateway.key_quotas.spend(KEY, clock())
        except ApiError:
            continue
        passed += 1
    return passed


def parts_sum(gateways: list[Gateway]) -> tuple[float, int]:
    parts = [gateway.key_quotas.part_of(KEY) for gateway in gateways]
    return sum(part.rate for part in parts), sum(part.slots for part in parts)


@pytest.mark.thorough
async def test_the_sum_of_shares_never_exceeds_the_limit_and_follows_demand(three: list[Gateway], clock: Clock) -> None:
    rng = random.Random(1)
    began, passed = clock.now, 0
    for favored in (0, 2):
        until_s = clock.now + 15.0
        while clock.now < until_s:
            await clock.until(lambda due=clock.now + 0.1: clock.now > due)  # type: ignore[misc]
            for number, gateway in enumerate(three):
                passed += calls(gateway, clock, 4 if number == favored else rng.randrange(2))
            rate, slots = parts_sum(three)
            assert rate <= 1.0 + 1e-9
            assert slots <= 10
        assert three[favored].key_quotas.part_of(KEY).rate > 0.5
    seconds = clock.now - began
    # They joined with empty buckets, so a minute's worth at once is not on top.
    assert passed <= 1.1 * 600 * seconds / 60
    assert passed >= 0.6 * 600 * seconds / 60


async def test_concurrent_requests_are_limited_together(three: list[Gateway], clock: Clock) -> None:
    held = 0
    for number in range(40):
        gateway = three[number % 3]
        try:
            gateway.key_quotas.enter(KEY, f"r{number}", clock())
        except ApiError:
            continue
        held += 1
    assert held == 10
    for number in range(40):
        three[number % 3].key_quotas.release(f"r{number}")


async def test_the_share_of_a_dead_gateway_goes_to_the_others(three: list[Gateway], clock: Clock) -> None:
    *living, dead = three
    await kill(dead)
    for task in dead._tasks:
        task.cancel()
    await clock.until(lambda: all(item.key_quotas.position[1] == 2 for item in living))

    def whole() -> bool:
        for gateway in living:
            calls(gateway, clock, 1)
        return parts_sum(living)[0] > 0.9

    await clock.until(whole)
    assert parts_sum(living)[0] <= 1.0 + 1e-9


def test_shares_add_up_to_the_limit() -> None:
    assert sum(shared_out([3.0, 0.0, 1.0])) == pytest.approx(1.0)
    assert shared_out([0.0, 0.0]) == [0.5, 0.5]
    assert min(shared_out([1.0, 0.0])) > 0
    for wanted in ([0.0, 0.0, 0.0], [5.0, 1.0, 0.0], [1.0, 1.0, 1.0]):
        assert sum(whole_slots(wanted, 10)) == 10
