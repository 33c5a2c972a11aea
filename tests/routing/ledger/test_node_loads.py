import pytest

from routing.ledger.node_holdings import NodeHoldings
from routing.ledger.node_loads import FORGOTTEN_AFTER_S, MAX_LINKS, SSD_FORGOTTEN_AFTER_S, NodeLoads
from routing.values.load_options import Fetch

KEYS = tuple(range(1, 11))
MIB = 1 << 20


def loads(**nodes: int) -> NodeLoads:
    """Return loads of two engines with local nodes a and b, where nodes hold this many leading blocks."""
    holdings = NodeHoldings()
    for name, blocks in nodes.items():
        holdings.join(name)
        holdings.stored(name, KEYS[:blocks])
        holdings.complete(name)
    made = NodeLoads(holdings)
    made.set_nodes({"e-01": "a", "e-02": "b"}, {"a": MIB, "b": MIB})
    return made


def ways(made: NodeLoads, engine_id: str, held: int = 0, now: float = 0.0) -> list[tuple[int, str]]:
    return [(item.blocks, item.node) for item in made.options(KEYS, now).onto(engine_id, held)]


def test_an_engines_local_node_is_cheaper_than_a_remote_one() -> None:
    made = loads(a=10, b=10)
    assert (ways(made, "e-01"), ways(made, "e-02")) == ([(10, "a")], [(10, "b")])


def test_more_blocks_on_another_node_are_a_separate_option() -> None:
    made = loads(a=4, b=10)
    assert ways(made, "e-01") == [(10, "b"), (4, "a")]
    assert ways(made, "e-01", held=4) == [(10, "b")]
    assert ways(made, "e-01", held=10) == []


def test_an_engine_without_a_local_node_loads_nothing() -> None:
    assert ways(loads(a=10), "e-03") == []


def test_without_held_blocks_there_are_no_load_options() -> None:
    assert not loads().options(KEYS, 0.0).groups
    assert not loads(a=0).options(KEYS, 0.0).groups
    assert not loads(a=10).options((), 0.0).groups


def test_only_missing_blocks_are_transferred() -> None:
    options = loads(b=10).options(KEYS, 0.0)
    nothing, half = options.onto("e-01", 0)[0], options.onto("e-01", 5)[0]
    assert nothing.seconds == pytest.approx(0.002 + 10 * MIB / 1e9)
    assert half.seconds == pytest.approx(0.002 + 5 * MIB / 1e9)


def test_link_cost_and_block_size_are_learned_from_loads() -> None:
    made = loads(b=10)
    for _ in range(200):
        made.loaded("e-01", "b", 8, 8 * 4096, 0.5, 0.0)
    assert made.block_bytes == pytest.approx(4096)
    assert made.seconds("a", "b", 8) == pytest.approx(0.5, rel=0.05)
    assert made.seconds("b", "b", 8) < 0.01
    assert [(home, node, rate.loads) for home, node, rate in made.links()] == [("a", "b", 200)]


def test_an_unmeasured_local_node_counts_as_cheaper_than_any_known_link() -> None:
    made = loads(a=10, b=10)
    for _ in range(200):
        made.loaded("e-01", "b", 10, 10 * MIB, 0.002, 0.0)
    assert made.seconds("a", "a", 10) == pytest.approx(made.seconds("a", "b", 10) / 2)
    assert ways(made, "e-01") == [(10, "a")]
    assert made.seconds("b", "b", 10) == loads().seconds("b", "b", 10), "another engine's links say nothing of its own"
    for _ in range(200):
        made.loaded("e-01", "a", 10, 10 * MIB, 0.003, 0.0)
    assert made.seconds("a", "a", 10) == pytest.approx(0.003, rel=0.01), "what was learned holds"


def test_a_slow_link_raises_the_local_node_at_most_to_its_prior() -> None:
    made = loads(a=10, b=10)
    for _ in range(200):
        made.loaded("e-01", "b", 10, 10 * MIB, 9.0, 0.0)
    assert made.seconds("a", "a", 10) == pytest.approx(loads().seconds("a", "a", 10))
    made.options(KEYS, FORGOTTEN_AFTER_S)
    assert made.links() == []
    assert made.seconds("a", "a", 10) == loads().seconds("a", "a", 10)


def test_a_slow_link_redirects_loads_to_another_holder() -> None:
    made = loads(b=10, c=10)
    assert ways(made, "e-01") == [(10, "b")]
    for _ in range(50):
        made.loaded("e-01", "b", 10, 10 * MIB, 5.0, 0.0)
    assert ways(made, "e-01") == [(10, "c")]


def test_a_failing_node_is_avoided_for_longer_after_each_failure() -> None:
    made = loads(a=10)
    made.failed("a", 100.0)
    assert (ways(made, "e-01", now=100.1), ways(made, "e-01", now=101.0)) == ([], [(10, "a")])
    for _ in range(8):
        made.failed("a", 200.0)
    assert (ways(made, "e-01", now=220.0), ways(made, "e-01", now=231.0)) == ([], [(10, "a")])
    made.loaded("e-01", "a", 1, MIB, 0.01, 240.0)
    made.failed("a", 300.0)
    assert ways(made, "e-01", now=301.0) == [(10, "a")]


def test_the_holders_of_this_many_blocks_are_listed_nearest_first() -> None:
    options = loads(a=4, b=10, c=10).options(KEYS, 0.0)
    assert options.holders("e-01", Fetch("", 4, 0.0, "a")) == ("a", "b", "c")
    assert options.holders("e-01", Fetch("", 5, 0.0, "b")) == ("b", "c")
    assert options.holders("e-01", Fetch("", 4, 0.0, "c")) == ("c", "a", "b"), "the decided node goes first"
    assert (options.blocks_on("a"), options.blocks_on("b"), options.blocks_on("d")) == (4, 10, 0)


def test_options_are_computed_again_only_after_a_change() -> None:
    made = loads(a=4, b=10)
    known = made.options(KEYS, 0.0)
    assert made.options(KEYS, 1.0, known) is known
    before_s = known.onto("e-01", 0)[0].seconds
    made.loaded("e-01", "b", 10, 10 * MIB, 9.0, 1.0)
    assert made.options(KEYS, 1.0, known) is known
    assert known.onto("e-01", 0)[0].seconds > 2 * before_s, "costs are current in any case"
    for change in (
        lambda: made.holdings.stored("a", KEYS[4:6]),
        lambda: made.holdings.removed("a", KEYS[4:6]),
        lambda: made.holdings.cleared("b"),
        lambda: made.holdings.complete("b"),
        lambda: made.holdings.leave("b"),
    ):
        change()
        renewed = made.options(KEYS, 1.0, known)
        assert renewed is not known
        known = renewed
    assert known.groups == [(4, ["a"])]
    assert loads(a=4).options(KEYS, 1.0, known) is not known, "options of other nodes are none of its own"


def test_options_without_an_avoided_node_are_not_kept() -> None:
    made = loads(a=10, b=4)
    known = made.options(KEYS, 0.0)
    made.failed("a", 0.0)
    avoiding = made.options(KEYS, 0.1, known)
    assert (avoiding.groups, known.groups) == ([(4, ["b"])], [(10, ["a"]), (4, ["b"])])
    assert made.options(KEYS, 0.6, avoiding).groups == known.groups


def test_loads_of_unknown_engines_and_empty_loads_teach_nothing() -> None:
    made = loads(a=10)
    for load in (("e-09", "a", 4, MIB, 1.0), ("e-01", "a", 0, 0, 1.0), ("e-01", "a", 4, 0, 0.0)):
        made.loaded(*load, 0.0)
    assert (made.links(), made.block_bytes) == ([], MIB)


def test_the_table_of_links_is_bounded() -> None:
    made = loads(a=10)
    for number in range(MAX_LINKS + 10):
        made.loaded("e-01", f"n{number}", 1, 1024, 0.01, 0.0)
    assert len(made.links()) == MAX_LINKS


def test_a_slow_link_is_retried_after_a_period_without_loads() -> None:
    made = loads(b=10, c=10)
    for _ in range(50):
        made.loaded("e-01", "b", 10, 10 * MIB, 5.0, 100.0)
    assert ways(made, "e-01", now=100.0 + FORGOTTEN_AFTER_S - 1) == [(10, "c")]
    assert ways(made, "e-01", now=100.0 + 1.2 * FORGOTTEN_AFTER_S) == [(10, "b")]
    assert made.links() == []


def test_blocks_only_on_ssd_cost_more_and_the_cost_is_learned() -> None:
    made = loads(b=10, c=10)
    made.holdings.stored("b", KEYS[4:10], dram=False)
    assert ways(made, "e-01") == [(10, "c")]
    made.holdings.stored("c", KEYS[2:10], dram=False)
    options = made.options(KEYS, 0.0)
    (load,) = options.onto("e-01", 0)
    assert (load.node, load.ssd_blocks) == ("b", 6)
    assert load.seconds == pytest.approx(0.002 + 10 * MIB / 1e9 + 0.0002 + 6 * MIB / 2e9)
    (rest,) = options.onto("e-01", 7)
    assert rest.ssd_blocks == 3
    for _ in range(200):
        made.loaded("e-01", "b", 10, 10 * MIB, 0.0125, 0.0)
        made.loaded("e-01", "b", 10, 10 * MIB, 0.1125, 0.0, 10)
    assert made.seconds("a", "b", 10) == pytest.approx(0.0125, rel=0.1)
    assert made.seconds("a", "b", 10, 10) == pytest.approx(0.1125, rel=0.1)
    assert made.ssd_rate("c").loads == 0


def test_a_load_waits_for_ordered_loads_on_a_measured_link_and_a_measured_ssd() -> None:
    made = loads(b=10)
    made.ordered("r1", "e-01", "b", 10, 10)
    assert made.seconds("a", "b", 10, 10) == loads().seconds("a", "b", 10, 10), "a prior may be far too slow"
    for _ in range(200):
        made.loaded("e-01", "b", 10, 10 * MIB, 0.1, 0.0)
        made.loaded("e-01", "b", 10, 10 * MIB, 0.3, 0.0, 10)
    made.ordered("r2", "e-01", "b", 10, 10)
    assert made.transfer_s("a", "b", 10, 10) == pytest.approx(0.3, rel=0.1)
    assert made.seconds("a", "b", 10, 10) == pytest.approx(3 * 0.3, rel=0.15)
    assert made.seconds("b", "b", 10) < 0.1, "another link is free"
    made.ended("r1")
    made.ended("r2")
    assert made.seconds("a", "b", 10, 10) == made.transfer_s("a", "b", 10, 10)
    made.check()


def test_the_wait_for_ordered_loads_is_not_learned_as_a_slow_link() -> None:
    made = loads(b=10)
    for _ in range(200):
        for number in range(5):
            made.ordered(f"r{number}", "e-01", "b", 10, 0)
        for number in range(5):
            made.loaded("e-01", "b", 10, 10 * MIB, 0.1 * (number + 1), 0.0, 0, f"r{number}")
    assert made.transfer_s("a", "b", 10) == pytest.approx(0.1, rel=0.1)


def test_a_late_load_teaches_its_time_and_its_node_stays_usable() -> None:
    made = loads(b=10)
    made.late("e-01", "b", 10, 5.0, 0.0)
    assert made.seconds("a", "b", 10) > 2 * loads().seconds("a", "b", 10)
    assert ways(made, "e-01") == [(10, "b")]
    made.late("e-09", "b", 10, 5.0, 0.0)
    made.late("e-01", "c", 0, 5.0, 0.0)
    assert [(home, node) for home, node, _ in made.links()] == [("a", "b")]


def test_a_load_that_was_stopped_early_teaches_nothing() -> None:
    made = loads(b=10)
    made.late("e-01", "b", 10, 0.0001, 0.0)
    assert made.links() == []


def test_a_slow_ssd_is_retried_soon_after_its_last_load() -> None:
    made = loads(b=10)
    for _ in range(50):
        made.loaded("e-01", "b", 10, 10 * MIB, 5.0, 100.0, 10)
    made.options(KEYS, 100.0 + SSD_FORGOTTEN_AFTER_S / 2)
    assert made.ssd_rate("b").loads == 50
    made.options(KEYS, 100.0 + 2.5 * SSD_FORGOTTEN_AFTER_S)
    assert made.ssd_rate("b").loads == 0


def test_one_load_at_a_time_is_tried_on_a_link_and_an_ssd_without_a_measurement() -> None:
    made = loads(b=10)
    assert made.untried("a", "b", 0)
    made.ordered("r1", "e-01", "b", 10, 0)
    assert not made.untried("a", "b", 0)
    made.ended("r1")
    assert made.untried("a", "b", 0)
    made.loaded("e-01", "b", 10, 10 * MIB, 0.1, 0.0)
    assert not made.untried("a", "b", 0)
    assert made.untried("a", "b", 10), "its SSD is not measured"
    made.loaded("e-01", "b", 10, 10 * MIB, 0.1, 0.0, 10)
    assert not made.untried("a", "b", 10)
    assert made.untried("b", "b", 0)
