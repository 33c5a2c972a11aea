from simulator.kv_nodes.node_stores import NodeStores


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
