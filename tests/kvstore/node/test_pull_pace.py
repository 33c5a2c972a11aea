"""Pulls that no request waits for share one rate limit."""

from __future__ import annotations

import pytest

from kvstore.node.pull_pace import PullPace
from kvstore.transfer.flow_control import FlowPriority
from kvstore.transfer.frames import Done, Pull
from tests.kvstore.kv_blocks import a_client, address, facts, node
from tests.kvstore.transfer.test_transfer import put


class Clock:
    def __init__(self) -> None:
        self.now = 50.0
        self.waited: list[float] = []

    def __call__(self) -> float:
        return self.now

    def wait(self, seconds: float) -> None:
        self.waited.append(seconds)


def test_bytes_wait_until_they_are_within_the_limit() -> None:
    clock = Clock()
    pace = PullPace(1000.0, clock, clock.wait)
    pace.came(500)
    pace.came(250)
    clock.now += 0.75
    pace.came(100)
    clock.now += 100.0
    pace.came(10)
    assert clock.waited == [pytest.approx(number) for number in (0.5, 0.75, 0.1, 0.01)]


@pytest.mark.parametrize(("limit", "size"), [(0.0, 1000), (-1.0, 1000), (1000.0, 0)])
def test_without_a_limit_or_bytes_nothing_waits(limit: float, size: int) -> None:
    clock = Clock()
    PullPace(limit, clock, clock.wait).came(size)
    assert clock.waited == []


def test_a_pull_that_a_request_waits_for_is_not_limited() -> None:
    """A limit of one byte per second would delay each block for minutes."""
    with node() as source, node(pull_bytes_per_s=1.0, drain_s=0.1) as target, a_client() as client:
        put(client, source, "a")
        answer = client.call(address(target), Pull(address(source), [facts("a")], int(FlowPriority.REQUEST)))
        assert answer == Done(1, [])


def test_nodes_apply_the_limit_of_their_settings() -> None:
    with node() as source, node(pull_bytes_per_s=20_000.0) as target, a_client() as client:
        put(client, source, "a", "b")
        before = target.store.clock()
        blocks = [facts("a"), facts("b", "a")]
        assert client.call(address(target), Pull(address(source), blocks, int(FlowPriority.PREFETCH))) == Done(2, [])
        assert target.store.clock() - before >= 0.9 * 2000 / 20_000, "the pull did not wait"
