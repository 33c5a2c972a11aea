"""Shards of engines are even and stable, and growth moves few engines."""

from __future__ import annotations

from collections import Counter

import pytest

from controlplane.fleet.jobs.probe import MAX_SHARDS, shard_count, shard_of

ENGINES = [f"eng-{number:032x}" for number in range(2000)]


@pytest.mark.parametrize(("engines", "shards"), [(0, 1), (1, 1), (100, 1), (101, 2), (2000, 20), (10**9, MAX_SHARDS)])
def test_number_of_shards_follows_the_number_of_engines(engines: int, shards: int) -> None:
    assert shard_count(engines) == shards


def test_every_shard_is_used_and_within_a_quarter_above_the_average() -> None:
    held = Counter(shard_of(engine, 20) for engine in ENGINES)
    assert set(held) == set(range(20))
    assert max(held.values()) <= 130


def test_added_shard_moves_engines_only_to_itself() -> None:
    moved = [(shard_of(item, 20), shard_of(item, 21)) for item in ENGINES if shard_of(item, 20) != shard_of(item, 21)]
    assert {after for _, after in moved} == {20}
    assert len(moved) < 2000 / 21 * 1.4


def test_engine_always_has_the_same_shard() -> None:
    assert [shard_of(f"e-{number:02d}", 4) for number in range(8)] == [shard_of(f"e-{n:02d}", 4) for n in range(8)]
    assert shard_of("anything", 1) == 0
