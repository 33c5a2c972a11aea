"""R15 in ten seconds: 200 publishes a minute drop no request, and each decision has one published version.

`bench.installation.publish_storm` measures how many versions are published a minute, and how soon gateways follow.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import aiohttp
import pytest

from bench.installation.publish_storm import Publication, Storm, figures_of, manage_key, storm
from bench.live.live_fleet import MODEL
from bench.live.live_program import LiveProgram, live_program

pytestmark = [pytest.mark.processes, pytest.mark.thorough]

MAX_STALE_DECISIONS = 200


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveProgram]:
    with live_program(tmp_path_factory.mktemp("program"), engines=True) as running:
        yield running


def test_publish_storm_drops_no_request_and_each_decision_has_one_version(program: LiveProgram) -> None:
    result = asyncio.run(storm(program, manage_key(program), seconds=10.0, per_minute=200.0, qps=6.0))
    figures = figures_of(result)
    assert figures["requests"] == 60
    assert figures["requests_dropped"] == 0, dict(result.errors)
    assert figures["decisions_unknown"] == 0
    assert figures["decisions_of_no_version"] == 0
    assert figures["publishes"] >= 10
    assert figures["publishes_rejected"] == 0
    assert figures["versions_used"] >= 2


async def test_decisions_never_return_to_a_rolled_back_version(program: LiveProgram) -> None:
    """R17: once a gateway follows a publish or a rollback, no decision has the replaced version.

    Gateways receive a version over the bus, after the answer to the publish.

    `bench.installation.publish_storm` measures the seconds (stale_max_s).
    """
    key = await asyncio.to_thread(manage_key, program)
    async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {key}"}) as session:

        async def post(path: str, body: dict[str, object]) -> dict[str, Any]:
            async with session.post(f"{program.url}/api/v1/{path}", json=body) as answer:
                answered: dict[str, Any] = await answer.json()
                assert answer.status in (200, 201, 401), answered
                return answered

        async def decided() -> int:
            body = {"model": MODEL, "token_ids": [1] * 64, "wait": False}
            return int((await post("route", body)).get("policy_version", -1))

        async def follows(number: int, replaced: int) -> None:
            for _ in range(MAX_STALE_DECISIONS):
                if (version := await decided()) == number:
                    break
                assert version == replaced
                await asyncio.sleep(0.05)
            assert [await decided() for _ in range(5)] == [number] * 5

        while await decided() < 0:
            # The gateway has not received the key yet, which another process created.
            await asyncio.sleep(0.05)
        for _ in range(5):
            good = await decided()
            bad = (await post("policies/default/versions", {"document": {"ttft_slo_s": 0.01}}))["number"]
            await post(f"policies/default/versions/{bad}/publish", {"instead_of": good})
            await follows(bad, replaced=good)
            back = await post("policies/default/roll_back", {"number": good, "instead_of": bad})
            await follows(back["number"], replaced=bad)


def test_staleness_reports_decisions_of_unpublished_and_replaced_versions() -> None:
    result = Storm(publications=[Publication(1, 0.0, 0.0), Publication(2, 10.0, 10.1), Publication(3, 20.0, 20.1)])
    assert result.staleness_s(10.05, 1) == 0.0
    assert result.staleness_s(12.1, 1) == pytest.approx(2.0)
    assert result.staleness_s(15.0, 2) == 0.0
    assert result.staleness_s(9.0, 2) is None
    assert result.staleness_s(15.0, 4) is None
    assert result.staleness_s(30.0, 3) == 0.0
