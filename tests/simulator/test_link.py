from random import Random

import pytest

from simulator.link import Link, OverbookedLinkError


def test_transfers_run_one_after_another_and_an_idle_link_saves_no_capacity() -> None:
    link = Link(100.0, latency_s=0.5)
    assert (link.carry(200, 1.0), link.carry(100, 1.0), link.carry(100, 9.0)) == (3.5, 4.5, 10.5)


def test_random_transfers_never_exceed_the_bandwidth() -> None:
    random, link, now = Random(1), Link(1000.0), 0.0
    for _ in range(500):
        now += random.random()
        ends_s = link.carry(random.randrange(2000), now)
        assert ends_s >= now
        assert link.carried_bytes <= 1000.0 * link.free_at + 1e-3


def test_exceeding_the_bandwidth_is_an_error() -> None:
    link = Link(100.0)
    link.carry(100, 0.0)
    link.free_at = 0.5
    with pytest.raises(OverbookedLinkError):
        link.check()
