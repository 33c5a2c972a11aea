"""Queue figures of one interval."""

from __future__ import annotations

import math

import msgspec

from controlplane.history.bucket import POOL_FLOATS, Column
from gateway.contracts.fleet_sample import FleetSample
from tests.controlplane.history.buckets import columns_of, samples_of


def folded(*pools: dict[str, object]) -> Column:
    """Return the column of samples whose first pool has these figures."""
    samples: list[FleetSample] = []
    for sample, figures in zip(samples_of(2, 5), pools, strict=False):
        first, *others = sample.pools
        samples.append(msgspec.structs.replace(sample, pools=(msgspec.structs.replace(first, **figures), *others)))
    (column,) = columns_of(samples)
    return column


def value(column: Column, name: str) -> float:
    return column.pools["pool-0"][POOL_FLOATS.index(name)]


def test_queued_requests_are_the_peak_and_rates_the_mean_of_the_interval() -> None:
    column = folded({"bound": 7, "migrations_per_s": 2.0}, {"bound": 3, "migrations_per_s": 1.0})
    assert (value(column, "bound"), value(column, "migrations_per_s")) == (7.0, 1.5)


def test_rejections_are_the_mean_by_code() -> None:
    figures: dict[str, object] = {"rejections_per_s": {"queue_full": 2.0, "infeasible": 1.0}}
    column = folded(figures)
    assert (column.rejections, value(column, "rejections_per_s")) == ({"pool-0": figures["rejections_per_s"]}, 3.0)
    column = folded(figures, {"rejections_per_s": {}})
    assert column.rejections == {"pool-0": {"queue_full": 1.0, "infeasible": 0.5}}
    assert value(column, "rejections_per_s") == 1.5


def test_gateway_without_queue_reports_leaves_the_queue_unknown() -> None:
    column = folded(
        {"bound": None, "rejections_per_s": None, "queue_wait_mean_s": None, "dispatched_at_once_per_s": None}
    )
    names = ("bound", "rejections_per_s", "queue_wait_mean_s", "dispatched_at_once_per_s")
    assert all(math.isnan(value(column, name)) for name in names)
