"""The owner's process is killed, or stopped and continued, while requests flow through the other gateways."""

from __future__ import annotations

import asyncio
import re
import signal
from pathlib import Path

import pytest

from routing.chain.ownership import ALONE as ALONE_ROLE
from routing.chain.ownership import ASKS, OWNER
from routing.values.decision import ALONE
from tests.gateway.owners.owner_processes import STAYS, Gateways, gateway_processes

pytestmark = pytest.mark.processes

MORE = 40


async def more(gateways: Gateways) -> None:
    """Return when more requests were answered."""
    wanted = len(gateways.answered) + MORE
    await gateways.until(lambda: len(gateways.answered) >= wanted)


async def test_a_killed_owner_fails_no_other_requests_and_its_successor_knows_all_running(tmp_path: Path) -> None:
    async with gateway_processes(tmp_path, "abc") as gateways:
        dead, epoch = await gateways.owner("abc")
        others = "abc".replace(dead, "")
        for engine in gateways.engines:
            engine.goes_on.clear()
        texts = [(name, f"{STAYS} {number}") for name in others for number in (1, 2)]
        staying = [asyncio.create_task(gateways.chat(name, text)) for name, text in texts]
        await gateways.until(lambda: sum(len(engine.ids) for engine in gateways.engines) == len(staying))
        async with gateways.callers(others):
            await more(gateways)
            gateways.signal(dead, signal.SIGKILL)
            new, later = await gateways.owner(others, epoch)
            await more(gateways)
        # The new owner accounts for requests from before the election, through either gateway.
        await gateways.until(lambda: gateways.in_flight(others) == len(staying))
        for engine in gateways.engines:
            engine.goes_on.set()
        await asyncio.gather(*staying)
        await gateways.until(lambda: gateways.in_flight(others) == 0)
        await gateways.asks_owner(others.replace(new, ""), epoch)

        gateways.check_requests()
        decided = {await gateways.decided_by(new, item) for item in gateways.answered}
        # The owner's own requests name no decider.
        assert all(said in ("", ALONE) or re.fullmatch(r"[abc], epoch \d+", said) for said in decided), decided
        assert f"{dead}, epoch {epoch}" in decided
        roles = gateways.roles_logged(new)
        before = roles[roles.index((OWNER, later)) - 1]
        assert before[0] == ALONE_ROLE, "it decided alone, and said so, until it was elected"


async def test_a_resumed_owner_sees_that_its_epoch_is_stale_and_asks_its_successor(tmp_path: Path) -> None:
    async with gateway_processes(tmp_path, "abc") as gateways:
        stopped, epoch = await gateways.owner("abc")
        others = "abc".replace(stopped, "")
        async with gateways.callers(others):
            await more(gateways)
            gateways.signal(stopped, signal.SIGSTOP)
            await gateways.owner(others, epoch)
            await more(gateways)
            # It finds what it was asked under its epoch, and the word of the next one.
            gateways.signal(stopped, signal.SIGCONT)
            new, later = await gateways.owner("abc", epoch)
            await more(gateways)
        await gateways.asks_owner(stopped, epoch)
        await gateways.until(lambda: gateways.in_flight("abc") == 0)
        gateways.check_requests()
        assert (new, later) != (stopped, epoch)
        assert (ASKS, later) in gateways.roles_logged(stopped) or new == stopped
