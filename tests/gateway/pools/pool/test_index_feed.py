"""The path from a hybrid engine's bytes to the router's decision."""

from __future__ import annotations

from collections import OrderedDict
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from gateway.base.settings import EventSettings
from gateway.pools.events.event_ledger import EventLedger
from gateway.pools.events.event_salts import SaltsSeen
from gateway.pools.pool.index_feed import IndexFeed
from kvstore.keys.block_keys import token_block_keys
from tests.routing.pools import pool, request

SIZE, TOKENS = 4, list(range(40))


def stored(group: int, kind: str, hashes: list[int]) -> dict[str, Any]:
    return {
        "type": "BlockStored", "block_hashes": hashes, "parent_block_hash": None, "token_ids": TOKENS,
        "block_size": SIZE, "medium": "GPU", "group_idx": group, "kv_cache_spec_kind": kind,
    }  # fmt: skip


@pytest.mark.parametrize(("salts_missing", "blocks"), [(False, 7), (True, 0)])
def test_group_events_affect_the_match(salts_missing: bool, blocks: int) -> None:
    router, restarted = pool(size=1), []
    engine: Any = SimpleNamespace(entry=SimpleNamespace(engine_id="e-01"), salts_seen=SaltsSeen())
    engine.salts_seen.missing = salts_missing
    ledger = EventLedger(
        IndexFeed(router, engine, restarted.append, OrderedDict()), lambda *_: 7, SIZE, EventSettings()
    )
    ledger.start_replay()
    ledger.end_replay()
    events = [stored(0, "mamba", [7]), stored(1, "full_attention", list(range(1, 11)))]
    ledger.live(0, msgspec.msgpack.encode([1.0, events, 0]))
    keys = tuple(token_block_keys(7, TOKENS, SIZE))
    asked = msgspec.structs.replace(request(1), keys=keys)
    assert router.view.match(asked).longest == blocks
    ledger.live(1, msgspec.msgpack.encode([1.0, [{"type": "AllBlocksCleared"}], 0]))
    assert router.view.match(asked).longest == 0
    router.index.check()
