import random

import pytest

from routing.ledger.ordered_loads import OrderedLoads

LINK = ("a", "b")


def test_a_load_waits_for_those_ordered_before_it_on_its_link_and_its_ssd() -> None:
    ordered = OrderedLoads()
    ordered.begin("r1", LINK, 100.0, 40.0)
    ordered.begin("r2", ("b", "b"), 50.0, 50.0)
    assert (ordered.on_link(*LINK), ordered.on_link("b", "b"), ordered.on_ssd("b")) == (100.0, 50.0, 90.0)
    assert ordered.on_link("a", "a") == ordered.on_ssd("a") == 0.0
    second = ordered.take("r2")
    assert second is not None
    assert (second.link_ahead, second.ssd_ahead) == (0.0, 40.0)


def test_an_ended_load_delays_no_other_and_is_returned_once_to_learn_from() -> None:
    ordered = OrderedLoads()
    ordered.begin("r1", LINK, 100.0, 40.0)
    ordered.end("r1")
    ordered.end("r1")
    assert (len(ordered), ordered.on_link(*LINK), ordered.on_ssd("b")) == (0, 0.0, 0.0)
    assert ordered.take("r1") is not None
    assert ordered.take("r1") is None
    assert ordered.take("unknown") is None


def test_a_request_that_is_ordered_again_counts_once() -> None:
    ordered = OrderedLoads()
    ordered.begin("r1", LINK, 100.0, 0.0)
    ordered.begin("r1", ("a", "c"), 60.0, 0.0)
    assert (ordered.on_link(*LINK), ordered.on_link("a", "c")) == (0.0, 60.0)


def test_at_the_limit_the_oldest_load_is_forgotten() -> None:
    ordered = OrderedLoads(limit=2)
    for number in range(5):
        ordered.begin(f"r{number}", LINK, 10.0, 10.0)
    assert (len(ordered), ordered.on_link(*LINK), ordered.on_ssd("b")) == (2, 20.0, 20.0)
    for number in range(5):
        ordered.end(f"r{number}")
    assert [ordered.take(f"r{number}") is None for number in range(5)] == [True, True, True, False, False]


def test_no_order_of_events_leaves_bytes_behind() -> None:
    rng, ordered = random.Random(3), OrderedLoads(limit=10)
    for _ in range(2_000):
        name = f"r{rng.randrange(30)}"
        match rng.randrange(4):
            case 0:
                ordered.end(name)
            case 1:
                ordered.take(name)
            case _:
                link = rng.choice("ab"), rng.choice("bc")
                ordered.begin(name, link, rng.random() * 1e9, rng.choice((0.0, rng.random() * 1e9)))
        ordered.check()
    for number in range(30):
        ordered.end(f"r{number}")
    assert not any(ordered.on_link(home, node) for home in "ab" for node in "bc")
    assert not any(ordered.on_ssd(node) for node in "bc")


def test_check_detects_wrong_sums() -> None:
    ordered = OrderedLoads()
    ordered.begin("r1", LINK, 100.0, 0.0)
    ordered._on_link[LINK] += 5.0
    with pytest.raises(AssertionError, match="ordered"):
        ordered.check()
