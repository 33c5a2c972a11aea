"""The tenant with most blocks loses its oldest; a tenant within its share loses none."""

from __future__ import annotations

from random import Random

import pytest

from kvstore.index.prefix_index import PrefixIndex
from kvstore.index.tenant_blocks import TenantBlocks


def test_a_flood_of_prefixes_evicts_no_other_tenants_hits() -> None:
    blocks, index = TenantBlocks(20_000), PrefixIndex()
    prompts = [range(number * 100, number * 100 + 50) for number in range(1, 100)]

    def sent(tenant: str, keys: range) -> None:
        index.store(0, keys)
        index.drop(blocks.touch(tenant, keys))

    def hit_share() -> float:
        return sum(index.match(keys, 1).blocks(0) for keys in prompts) / sum(map(len, prompts))

    for keys in prompts:
        sent("a", keys)
    assert hit_share() == 1.0
    for number in range(200_000):
        sent("b", range(10**9 + number, 10**9 + number + 1))
    blocks.check()
    assert hit_share() >= 0.95
    assert len(index) <= 20_000


def test_an_only_tenant_can_fill_everything_and_its_oldest_blocks_are_evicted_first() -> None:
    blocks = TenantBlocks(100)
    assert blocks.touch("a", range(100)) == []
    blocks.touch("a", range(10))
    gone = blocks.touch("a", range(200, 201))
    assert gone == [99]


def test_blocks_shared_with_another_tenant_stay() -> None:
    blocks = TenantBlocks(4)
    blocks.touch("a", [1])
    assert blocks.touch("b", [5, 4, 3, 2, 1]) == [2]
    blocks.check()


@pytest.mark.parametrize("seed", range(4))
def test_random_operations_keep_the_limit(seed: int) -> None:
    rng, blocks = Random(seed), TenantBlocks(300)
    for _ in range(500):
        start = rng.randrange(1000)
        blocks.touch(rng.choice("abc"), range(start, start + rng.randint(0, 40)))
        blocks.check()
    blocks.clear()
    blocks.check()
    assert len(blocks) == 0


def test_a_limit_of_zero_keys_is_rejected() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        TenantBlocks(0)
