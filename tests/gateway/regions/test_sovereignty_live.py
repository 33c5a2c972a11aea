"""Sovereignty rules at a gateway: checked first, named in the record, and enforced when a region is full."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from routing.regions.sovereignty import SovereigntyDocument, SovereigntyRule
from tests.gateway.regions.three_regions import ThreeRegions, three_regions

ONLY_ASIA = SovereigntyDocument(
    default="deny",
    rules=(SovereigntyRule("asia may", tenants=("tenant-a",), from_regions=("us",), to_regions=("asia",)),),
)


@pytest.fixture
async def regions(tmp_path: Path) -> AsyncIterator[ThreeRegions]:
    async with three_regions(tmp_path) as running:
        served = running.gateways["us"].gateway.regions
        assert served is not None
        served._targets._sovereignty = lambda: ONLY_ASIA
        yield running


async def test_a_full_region_forwards_nothing_that_a_rule_forbids(regions: ThreeRegions) -> None:
    regions.engines["us"].pause_s = 0.5
    answers = await asyncio.gather(*(regions.chat("us", f"question {number}") for number in range(6)))
    assert {status for status, _, _ in answers} == {200}
    assert regions.engines["eu"].bodies == []
    assert regions.engines["asia"].bodies
    explained = [await regions.explain("us", decision_id) for _, _, decision_id in answers]
    hops = [item["hop"] for item in explained if item["hop"] is not None]
    assert hops
    assert {hop["rule"] for hop in hops} == {"asia may"}
