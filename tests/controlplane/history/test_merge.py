"""A long column holds the merged values of its parts."""

from __future__ import annotations

import math

import pytest

from controlplane.history.bucket import ENGINE_FLOATS, LOST, POOL_FLOATS, UNKNOWN_BYTE
from controlplane.history.merge import merge, merged_by
from controlplane.history.roster import NO_ENGINES, HistoryRoster, union
from tests.controlplane.history.buckets import columns_of, samples_of
from tests.web.fake_fleet import LOST_AT, LOST_UNTIL

SECONDS, MEAN = ENGINE_FLOATS.index("seconds"), ENGINE_FLOATS.index("mean_s")


def test_merged_short_columns_equal_the_long_column_of_the_same_samples() -> None:
    samples = samples_of(5, 60, begin=LOST_AT - 30)
    merged = merged_by(columns_of(samples, 2), 5)
    for direct in columns_of(samples, 10):
        by_parts = merged[direct.index]
        assert by_parts.samples == direct.samples
        for index in range(len(ENGINE_FLOATS)):
            assert list(by_parts.floats[index]) == pytest.approx(list(direct.floats[index]), rel=1e-5)
        assert by_parts.codes[0] == direct.codes[0]


def test_engine_lost_in_any_part_is_lost() -> None:
    columns = columns_of(samples_of(5, 120, begin=LOST_AT - 20))
    merged = merge(0, columns)
    lost = [row for row, state in enumerate(merged.codes[0]) if state == LOST]
    assert [merged.roster.names[row] for row in lost] == ["e-05"]
    assert LOST_UNTIL < LOST_AT + 100


def test_share_is_weighted_by_its_requests() -> None:
    one, other = columns_of(samples_of(2, 20))
    on_time, requests, p99, late = (
        POOL_FLOATS.index(name) for name in ("on_time", "requests_per_s", "ttft_p99_s", "late")
    )
    for column, share, rate, slow in ((one, 1.0, 30.0, 2.0), (other, 0.0, 10.0, 9.0)):
        column.pools["pool-0"][on_time], column.pools["pool-0"][requests] = share, rate
        column.pools["pool-0"][p99] = column.pools["pool-0"][late] = slow
    pool = merge(0, [one, other]).pools["pool-0"]
    assert (pool[on_time], pool[requests], pool[p99], pool[late]) == (0.75, 20.0, 9.0, 9.0)


def test_waits_are_weighted_by_dispatches_and_rejections_are_means_by_code() -> None:
    one, other = columns_of(samples_of(2, 20))
    names = ("dispatched_waited_per_s", "dispatched_at_once_per_s", "queue_wait_mean_s", "bound", "rejections_per_s")
    waited, at_once, wait, bound, rejections = map(POOL_FLOATS.index, names)
    for column, rate, wait_s in ((one, 3.0, 2.0), (other, 1.0, 6.0)):
        column.pools["pool-0"][waited], column.pools["pool-0"][at_once] = rate, 0.0
        column.pools["pool-0"][wait], column.pools["pool-0"][bound] = wait_s, wait_s
        column.pools["pool-0"][rejections] = 0.0
    other.pools["pool-0"][rejections] = 3.0
    other.rejections["pool-0"] = {"queue_full": 2.0, "infeasible": 1.0}
    merged = merge(0, [one, other])
    pool = merged.pools["pool-0"]
    assert (pool[wait], pool[bound], pool[waited], pool[rejections]) == (3.0, 6.0, 2.0, 1.5)
    assert merged.rejections == {"pool-0": {"queue_full": 1.0, "infeasible": 0.5}}


def test_parts_without_queue_figures_are_ignored_for_the_queue() -> None:
    old, new = columns_of(samples_of(2, 20))
    counts = POOL_FLOATS.index("on_time_requests")
    for index in range(POOL_FLOATS.index("bound"), counts):
        old.pools["pool-0"][index], new.pools["pool-0"][index] = math.nan, 4.0
    new.rejections["pool-0"] = {"queue_full": 4.0}
    merged = merge(0, [old, new])
    assert merged.pools["pool-0"][POOL_FLOATS.index("bound") : counts] == [4.0] * 10
    assert merged.rejections == {"pool-0": {"queue_full": 4.0}}


def test_ended_requests_add_up_and_are_unknown_only_if_all_parts_are() -> None:
    parts = columns_of(samples_of(2, 30))
    on_time, counted = POOL_FLOATS.index("on_time_requests"), POOL_FLOATS.index("counted_requests")
    for column, values in zip(parts, ((math.nan, math.nan), (3.0, 5.0), (4.0, 1000.0)), strict=True):
        column.pools["pool-0"][on_time], column.pools["pool-0"][counted] = values
    pool = merge(0, parts).pools["pool-0"]
    assert (pool[on_time], pool[counted]) == (7.0, 1005.0)
    assert math.isnan(merge(0, parts[:1]).pools["pool-0"][counted])


def test_share_without_requests_is_unknown() -> None:
    one, other = columns_of(samples_of(2, 20))
    for column in (one, other):
        column.pools["pool-0"][POOL_FLOATS.index("on_time")] = math.nan
        column.pools["pool-0"][POOL_FLOATS.index("requests_per_s")] = 0.0
    assert math.isnan(merge(0, [one, other]).pools["pool-0"][POOL_FLOATS.index("on_time")])


def test_engines_are_unknown_in_parts_before_they_joined_or_after_they_left() -> None:
    early, late = columns_of(samples_of(3, 10)), columns_of(samples_of(4, 20))
    merged = merge(0, [early[0], late[1]])
    assert merged.roster.engine_ids == late[1].roster.engine_ids
    row = merged.roster.row_of["engine-e-04"]
    assert merged.floats[SECONDS][row] == late[1].floats[SECONDS][row]
    assert merged.floats[MEAN][row] == pytest.approx(late[1].floats[MEAN][row])


def test_union_keeps_the_newest_order_and_appends_removed_engines_to_their_pool() -> None:
    old = HistoryRoster(("a", "gone", "z"), ("a", "gone", "z"), ("p", "p", "q"))
    new = HistoryRoster(("b", "a", "z"), ("b", "renamed", "z"), ("p", "p", "q"))
    assert union([old], last=new).names == ("b", "renamed", "gone", "z")
    assert union([], last=NO_ENGINES) == NO_ENGINES


def test_values_known_in_some_parts_are_merged_from_these_parts() -> None:
    one, other = columns_of(samples_of(3, 20))
    one.floats[SECONDS][0] = one.floats[MEAN][0] = other.floats[SECONDS][1] = other.floats[MEAN][1] = math.nan
    for part, rows in ((1, (0,)), (2, (0, 1))):
        for row in rows:
            other.codes[part][row] = UNKNOWN_BYTE
    merged = merge(0, [one, other])
    assert list(merged.floats[SECONDS][:2]) == [other.floats[SECONDS][0], one.floats[SECONDS][1]]
    assert list(merged.floats[MEAN][:2]) == pytest.approx([other.floats[MEAN][0], one.floats[MEAN][1]])
    assert merged.codes[1] == bytes([one.codes[1][0], *other.codes[1][1:]])
    assert merged.codes[2] == bytes([*one.codes[2][:2], *other.codes[2][2:]])
