"""An operator's eviction rule and SSD policy apply to a running node, and end with the operator's choice."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kvstore.node.node_manager import NodeManager
from kvstore.node.write_through import ALL, PEAKS
from tests.kvstore.kv_blocks import a_client, address, block, facts, key, node, on_ssd
from tests.kvstore.node.registry import registry
from tests.kvstore.transactions.test_block_catalog import held
from tests.patience import wait_until


def put(manager: NodeManager, *names: str, pins: bool = False) -> None:
    with a_client() as client:
        blocks = [block(name) for name in names]
        client.put(address(manager), blocks, "context_cache" if pins else "default", 60.0 if pins else 0.0)


def test_by_the_policy_peaks_only_pinned_blocks_and_those_of_a_peak_go_to_ssd(tmp_path: Path) -> None:
    with node(tmp_path, ssd_policy=PEAKS) as manager:
        put(manager, "plain")
        put(manager, "pinned", pins=True)
        wait_until(lambda: on_ssd(manager, "pinned"))
        assert not on_ssd(manager, "plain")
        manager.store.pin([key("plain")], 60.0)
        wait_until(lambda: on_ssd(manager, "plain"))
        put(manager, *"abcde")
        put(manager, "peak")
        wait_until(lambda: on_ssd(manager, "peak"))
        assert not on_ssd(manager, "a")


def test_a_catalog_evicts_by_another_rule_from_then_on() -> None:
    blocks = held(facts("root"), facts("old", "root"), facts("new", "root"))
    for name in ("rlt", "leaf_lru"):
        blocks.evict_by(name)
        blocks.check()
        assert blocks.can_take(3)
    with pytest.raises(ValueError, match="known are leaf_lru, rlt"):
        blocks.evict_by("most_recent")


def test_a_node_follows_the_operators_choice_and_reports_it(tmp_path: Path) -> None:
    chosen: dict[str, Any] = {"eviction": "rlt", "ssd_policy": PEAKS}
    with (
        registry(lambda entry: json.dumps({"name": entry["name"], **chosen}).encode()) as (url, entries),
        node(tmp_path, register_url=url) as manager,
    ):
        wait_until(lambda: (manager.store.eviction, manager.write_through.policy) == ("rlt", PEAKS))
        wait_until(lambda: entries[-1]["report"]["eviction"] == "rlt")
        assert entries[0]["report"]["eviction"] == "leaf_lru"
        chosen.update(eviction="", ssd_policy="of a later version")
        manager._registration.say("serving")  # type: ignore[union-attr]
        wait_until(lambda: manager.store.eviction == "leaf_lru")
        assert manager.write_through.policy == PEAKS
        chosen.update(ssd_policy="")
        manager._registration.say("serving")  # type: ignore[union-attr]
        wait_until(lambda: manager.write_through.policy == ALL)
