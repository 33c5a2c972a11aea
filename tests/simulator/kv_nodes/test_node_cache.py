from random import Random

from kvstore.transactions.expected_blocks import Expected
from simulator.kv_nodes.node_cache import NodeCache, NodeStores, Tiers


def test_a_block_evicted_from_dram_is_read_from_ssd_and_returns_to_dram() -> None:
    cache = NodeCache(4, 100)
    assert cache.put([1, 2, 3, 4], 0.0) == 4
    assert cache.take_changed() == dict.fromkeys((1, 2, 3, 4), (True, True))
    cache.put([11, 12], 1.0)
    assert cache.holds([1, 2, 3, 4]) == Tiers(4, 2)
    assert cache.take_changed() == {11: (True, True), 12: (True, True), 4: (True, False), 3: (True, False)}
    assert cache.read([1, 2, 3, 4], 2.0) == Tiers(4, 2)
    assert cache.holds([1, 2, 3, 4]) == Tiers(4, 4)
    cache.check()


def test_without_ssd_the_longest_unused_leaf_is_lost() -> None:
    cache = NodeCache(4)
    cache.put([1, 2], 0.0)
    cache.put([11, 12], 1.0)
    cache.read([1, 2], 2.0)
    cache.put([21], 3.0)
    assert (cache.holds([1, 2]).blocks, cache.holds([11, 12]).blocks) == (2, 1)


def test_ephemeral_blocks_are_not_stored_and_context_caches_outlast_others() -> None:
    cache = NodeCache(4, 4, pin_share=0.5)
    assert cache.put([1], 0.0, hint="ephemeral") == 0
    cache.put([2, 3], 0.0, hint="context_cache", pin_s=100.0)
    for number in range(10, 40, 2):
        cache.put([number, number + 1], 1.0)
    assert cache.holds([2, 3]).blocks == 2
    cache.put([50, 51, 52, 53], 101.0)
    cache.put([60, 61, 62, 63], 102.0)
    assert cache.holds([2, 3]).blocks == 0


def test_reported_changes_add_up_to_the_contents() -> None:
    random, cache, reported = Random(3), NodeCache(16, 40), dict[int, tuple[bool, bool]]()
    for now in range(400):
        prompt = [100 * random.randrange(12) + block for block in range(random.randrange(1, 6))]
        if random.random() < 0.6:
            cache.put(prompt, float(now))
        else:
            cache.read(prompt, float(now))
        reported.update(cache.take_changed())
        cache.check()
    held = {key: state for key, state in reported.items() if state[0]}
    assert len(held) == len(cache.catalog)
    assert sum(dram for _, dram in held.values()) <= 16


def test_demoted_blocks_stay_on_ssd_and_blocks_without_a_copy_there_stay_in_dram() -> None:
    cache = NodeCache(8, 8)
    cache.put([1, 2, 3], 0.0)
    cache.take_changed()
    cache.demote([1, 2, 3, 99])
    assert cache.holds([1, 2, 3]) == Tiers(3, 0)
    assert cache.take_changed() == dict.fromkeys((3, 2, 1), (True, False))
    cache.check()
    alone = NodeCache(8)
    alone.put([1, 2], 0.0)
    alone.demote([1, 2])
    assert alone.holds([1, 2]) == Tiers(2, 2)


def test_an_advisory_promotes_blocks_and_its_blocks_are_evicted_first_once_it_has_expired() -> None:
    cache = NodeCache(4, 16)
    cache.put([1, 2], 0.0)
    cache.demote([1, 2])
    cache.promote([1, 2], 1.0, Expected(5.0, 20.0))
    assert cache.holds([1, 2]) == Tiers(2, 2)
    cache.put([11, 12], 0.5)
    cache.put([21], 30.0)
    assert (cache.holds([1, 2]).dram, cache.holds([11, 12]).dram) == (1, 2)
    cache.check()


def test_blocks_that_an_advisory_brings_are_written_to_ssd_at_their_first_read() -> None:
    cache = NodeCache(8, 8)
    cache.put([1, 2], 0.0, expected=Expected(5.0, 20.0))
    assert len(cache.catalog.expected) == 2
    assert cache.take_written() == 0
    cache.read([1, 2], 1.0)
    assert len(cache.catalog.expected) == 0
    assert cache.take_written() == 2
    cache.demote([1, 2])
    assert cache.holds([1, 2]) == Tiers(2, 0), "on SSD since the first read"


def test_the_ledger_follows_the_contents_and_their_tiers() -> None:
    stores = NodeStores(("a", "b"), 4, 8, 1000)
    stores.set_homes({"e-01": "a", "e-02": "b"})
    stores.caches["a"].put([1, 2, 3], 0.0)
    assert not stores.ledger.options([1, 2, 3], 0.0).groups, "not before the node's events"
    assert stores.publish_changes("a") == dict.fromkeys((1, 2, 3), (True, True))
    options = stores.ledger.options([1, 2, 3], 0.0)
    assert [(load.blocks, load.node, load.ssd_blocks) for load in options.onto("e-02", 0)] == [(3, "a", 0)]
    stores.caches["a"].demote([1, 2, 3])
    stores.publish_changes("a")
    assert [load.ssd_blocks for load in options.onto("e-02", 0)] == [0], "as of the lookup"
    again = stores.ledger.options([1, 2, 3], 0.0)
    assert [load.ssd_blocks for load in again.onto("e-02", 0)] == [3]
    stores.check()


def test_evicted_blocks_leave_the_ledger() -> None:
    stores = NodeStores(("a",), 2, 0, 1000)
    stores.set_homes({"e-01": "a"})
    stores.caches["a"].put([1, 2], 0.0)
    stores.publish_changes("a")
    stores.caches["a"].put([11, 12], 1.0)
    assert stores.publish_changes("a")[1] == (False, False)
    assert not stores.ledger.options([1, 2], 2.0).groups
    assert stores.ledger.block_bytes == 1000
