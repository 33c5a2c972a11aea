"""A long column says of its parts what they say together."""

from __future__ import annotations

import math

import pytest

from controlplane.fleet_past.column import ENGINE_FLOATS, LOST, POOL_FLOATS
from controlplane.fleet_past.merge import merge, merged_by
from controlplane.fleet_past.roster import NOBODY, Roster, union
from tests.controlplane.fleet_past.columns import columns_of, samples_of
from tests.web.fake_fleet import LOST_AT, LOST_UNTIL

SECONDS, MEAN = ENGINE_FLOATS.index("seconds"), ENGINE_FLOATS.index("mean_s")


def test_short_columns_merge_into_what_a_long_one_would_have_been() -> None:
    samples = samples_of(5, 60, begin=LOST_AT - 30)
    merged = merged_by(columns_of(samples, 2), 5)
    for direct in columns_of(samples, 10):
        by_parts = merged[direct.index]
        assert by_parts.samples == direct.samples
        for place in range(len(ENGINE_FLOATS)):
            assert list(by_parts.floats[place]) == pytest.approx(list(direct.floats[place]), rel=1e-5)
        assert by_parts.codes[0] == direct.codes[0]


def test_a_loss_in_any_part_is_a_loss() -> None:
    columns = columns_of(samples_of(5, 120, begin=LOST_AT - 20))
    merged = merge(0, columns)
    lost = [row for row, state in enumerate(merged.codes[0]) if state == LOST]
    assert [merged.roster.names[row] for row in lost] == ["e-05"]
    assert LOST_UNTIL < LOST_AT + 100


def test_a_share_is_weighted_by_the_requests_behind_it() -> None:
    one, other = columns_of(samples_of(2, 20))
    on_time, requests, p99, late = (
        POOL_FLOATS.index(name) for name in ("on_time", "requests_per_s", "ttft_p99_s", "late")
    )
    for column, share, rate, slow in ((one, 1.0, 30.0, 2.0), (other, 0.0, 10.0, 9.0)):
        column.pools["pool-0"][on_time], column.pools["pool-0"][requests] = share, rate
        column.pools["pool-0"][p99] = column.pools["pool-0"][late] = slow
    pool = merge(0, [one, other]).pools["pool-0"]
    assert (pool[on_time], pool[requests], pool[p99], pool[late]) == (0.75, 20.0, 9.0, 9.0)


def test_a_share_without_requests_is_unknown() -> None:
    one, other = columns_of(samples_of(2, 20))
    for column in (one, other):
        column.pools["pool-0"][POOL_FLOATS.index("on_time")] = math.nan
        column.pools["pool-0"][POOL_FLOATS.index("requests_per_s")] = 0.0
    assert math.isnan(merge(0, [one, other]).pools["pool-0"][POOL_FLOATS.index("on_time")])


def test_engines_that_came_or_went_are_unknown_where_they_were_not() -> None:
    early, late = columns_of(samples_of(3, 10)), columns_of(samples_of(4, 20))
    merged = merge(0, [early[0], late[1]])
    assert merged.roster.engine_ids == late[1].roster.engine_ids
    row = merged.roster.place["engine-e-04"]
    assert merged.floats[SECONDS][row] == late[1].floats[SECONDS][row]
    assert merged.floats[MEAN][row] == pytest.approx(late[1].floats[MEAN][row])


def test_a_union_keeps_the_newest_order_and_puts_the_gone_behind_their_pool() -> None:
    old = Roster(("a", "gone", "z"), ("a", "gone", "z"), ("p", "p", "q"))
    new = Roster(("b", "a", "z"), ("b", "renamed", "z"), ("p", "p", "q"))
    assert union([old], last=new).names == ("b", "renamed", "gone", "z")
    assert union([], last=NOBODY) == NOBODY
