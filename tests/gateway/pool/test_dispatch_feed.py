"""Blocks that dispatches leave at engines enter the index; long prompts do so over several loop iterations."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from gateway.base.settings import GatewaySettings
from gateway.pool.dispatch_feed import DispatchFeed
from routing.values.observation import FirstToken

LONG = 20_000


class Fed:
    """A feed whose router records the stored blocks in call order."""

    def __init__(self, *, feeds: bool = True, guessed: bool = False) -> None:
        self.stored: list[int] = []
        self.ends: list[int] = []
        self.engine = SimpleNamespace(incarnation="one", intake=None)
        router: Any = SimpleNamespace(
            blocks_stored=lambda _, keys: self.stored.extend(reversed(keys)),
            index=SimpleNamespace(drop=lambda _: None),
            fleet=SimpleNamespace(keep_tail=lambda _, keys: self.ends.append(keys[-1])),
        )
        engines: Any = {"e": self.engine}
        self.feed = DispatchFeed(router, engines, GatewaySettings(), feeds=lambda _: feeds, refresh=lambda: None)
        self.feed.feeds_any = feeds
        decision: Any = SimpleNamespace(engine_id="e", incarnation="one", hit_tokens=0)
        request: Any = SimpleNamespace(
            request_id="r", keys=tuple(range(LONG)), tenant_id="t", guessed=guessed, proves_salts=False
        )
        self.feed.dispatched(decision, request)


async def turns() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_a_long_prompt_is_indexed_over_several_loop_iterations_leaf_first() -> None:
    fed = Fed()
    fed.feed.observed(FirstToken("r"))
    assert 0 < len(fed.stored) < LONG
    await turns()
    assert fed.stored == list(reversed(range(LONG)))
    assert fed.ends == [LONG - 1]


async def test_indexing_stops_after_a_clear_or_an_engine_restart() -> None:
    cleared, restarted = Fed(), Fed()
    for fed in (cleared, restarted):
        fed.feed.observed(FirstToken("r"))
    before = len(cleared.stored)
    cleared.feed.clear()
    restarted.engine.incarnation = "two"
    await turns()
    assert len(cleared.stored) == len(restarted.stored) == before


async def test_if_events_feed_the_index_only_guessed_keys_are_added() -> None:
    exact, guessed = Fed(feeds=False), Fed(feeds=False, guessed=True)
    for fed in (exact, guessed):
        fed.feed.observed(FirstToken("r"))
    await turns()
    assert exact.stored == []
    assert sorted(guessed.stored) == list(range(LONG))
