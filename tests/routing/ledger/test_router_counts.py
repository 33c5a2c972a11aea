"""A router counts its outcomes consistently."""

from collections import Counter
from random import Random

import pytest

from routing.ledger.router_counts import RouterCounts
from routing.router import Router
from routing.values.decision import Dispatched, Outcome, Queued, Rejected
from routing.values.observation import Completed, FirstToken
from tests.routing.pools import engines, pool, request
from tests.routing.test_router_properties import Ledger, step


class Tally(Ledger):
    """Count the outcomes independently."""

    def __init__(self) -> None:
        super().__init__()
        self.kinds: Counter[type] = Counter()

    def note(self, outcomes: list[Outcome]) -> None:
        self.kinds.update(map(type, outcomes))
        super().note(outcomes)


def busy(order: str = "fifo", **settings: float) -> Router:
    """Return a router of one engine that runs a long prefill, dispatched immediately."""
    router = pool("least_cost", order, size=1, **settings)
    assert isinstance(router.place(request(0, [], tokens=40_000), 0.0), Dispatched)
    return router


def test_immediate_and_delayed_dispatches_are_counted_separately() -> None:
    router = busy()
    assert isinstance(router.place(request(1, at=0.1), 0.1), Queued)
    outcomes = router.observe(FirstToken("request-00000000"), 5.0)
    assert [type(outcome) for outcome in outcomes] == [Dispatched]
    seen = router.counts
    assert (seen.dispatched_at_once, seen.queued, seen.dispatched_after_waiting, seen.overtaken) == (1, 1, 1, 0)


def test_rejections_are_counted_by_any_code() -> None:
    router = busy(queue_limit=1, max_wait_s=3.0)
    router.place(request(1, at=0.1), 0.1)
    router.place(request(2, at=0.2), 0.2)
    router.tick(4.0)
    assert router.counts.rejected == {"queue_full": 1, "wait_expired": 1}
    counts = RouterCounts()
    counts.answered(Rejected("r", "a_code_of_tomorrow", 1.0))
    assert counts.seen().rejected == {"a_code_of_tomorrow": 1}


def test_a_queued_request_is_overtaken_when_a_later_one_is_dispatched_first() -> None:
    router = busy("priority")
    router.place(request(1, at=0.1, tokens=2000), 0.1)
    router.place(request(2, at=0.2, tokens=2000, priority=-5), 0.2)
    for second, number in enumerate((0, 2, 1)):
        router.observe(Completed(f"request-{number:08}"), 9.0 + second)
    seen = router.counts
    assert (seen.dispatched_after_waiting, seen.overtaken) == (2, 1)


def test_returned_counts_are_a_snapshot() -> None:
    router = pool(size=1)
    before = router.counts
    router.place(request(1), 0.0)
    assert (before.dispatched_at_once, router.counts.dispatched_at_once) == (0, 1)


def test_arrivals_at_removed_engines_are_forgotten() -> None:
    counts = RouterCounts()
    router = pool(size=1)
    dispatched = router.place(request(1), 0.0)
    counts.followed([dispatched], 0.0)
    counts.keep(engine.engine_id for engine in engines(1)[:0])
    counts.followed([dispatched], -5.0)
    assert counts.seen().overtaken == 0


@pytest.mark.parametrize("seed", range(4))
def test_the_counts_agree_with_the_outcomes_of_random_operations(seed: int) -> None:
    rng, router, ledger = Random(seed), pool("dual_map", "slack", max_wait_s=6.0), Tally()
    for number in range(300):
        step(router, ledger, rng, number * 0.4, number)
        router.check()
    seen = router.counts
    assert seen.dispatched_at_once + seen.dispatched_after_waiting == ledger.kinds[Dispatched] > 0
    assert sum(seen.rejected.values()) == ledger.kinds[Rejected] > 0
    assert seen.queued == ledger.kinds[Queued] > 0


def test_more_queued_requests_than_were_counted_fail_the_check() -> None:
    with pytest.raises(AssertionError, match="more queued requests wait"):
        RouterCounts().check(1)
