"""A stored column is small and is decoded unchanged; invalid data is rejected.

Queue figures of one interval.
"""

from __future__ import annotations

import math
import zlib

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from controlplane.history.annotation import Annotation
from controlplane.history.bucket import ENGINE_FLOATS, POOL_FLOATS, Column
from controlplane.history.codec import MAX_BYTES, UnreadableRollupError, decode_part, encode_part, peak_seconds, rows_of
from gateway.contracts.fleet_sample import FleetSample
from tests.controlplane.history.buckets import columns_of, samples_of
from tests.web.fake_fleet import LOST_AT

LARGEST, TINY = 3.4e38, 2**-136
"""Above it a value may round to infinity; below 2**-126 a float32 has fewer bits."""
MARKER = Annotation(3, 1.5, "lost", "e-01", "e-01 is lost", "pool-0", "engine-e-01")


def test_part_is_decoded_with_its_markers() -> None:
    column = columns_of(samples_of(5, 30, begin=LOST_AT))[1]
    rows = rows_of(column.roster, "pool-0")
    part = decode_part(encode_part(column, "pool-0", rows, [MARKER]))
    assert (part.samples, part.markers) == (column.samples, [MARKER])
    for index in range(len(ENGINE_FLOATS)):
        expected = [column.floats[index][row] for row in rows]
        assert list(part.floats[index]) == pytest.approx(expected, rel=5e-4)
    assert part.codes == [bytearray(series[row] for row in rows) for series in column.codes]
    assert part.pool == pytest.approx(column.pools["pool-0"], rel=1e-6, nan_ok=True)
    assert peak_seconds(column, rows) == max(column.floats[1][row] for row in rows)


def test_rejections_are_decoded_by_their_code() -> None:
    column = columns_of(samples_of(2, 10))[0]
    column.rejections["pool-0"] = {"queue_full": 0.5, "a_code_of_tomorrow": 1.5}
    assert decode_part(encode_part(column, "pool-0", [0], [])).rejections == column.rejections["pool-0"]
    assert decode_part(encode_part(column, "pool-1", [1], [])).rejections == {}


@given(st.floats(width=32))
def test_any_value_is_decoded_with_eleven_significant_bits(value: float) -> None:
    column = columns_of(samples_of(2, 1))[0]
    column.floats[0][0] = value
    (stored,) = decode_part(encode_part(column, "pool-0", [0], [])).floats[0]
    if abs(value) < LARGEST:
        assert stored == pytest.approx(value, rel=2**-11, abs=TINY)
    assert math.copysign(1, stored) == math.copysign(1, value) or math.isnan(value)
    assert math.isnan(stored) == math.isnan(value)


def test_unknown_stays_unknown() -> None:
    column = columns_of(samples_of(2, 1))[0]
    column.floats[0][0] = math.nan
    assert math.isnan(decode_part(encode_part(column, "pool-0", [0], [])).floats[0][0])


@pytest.mark.parametrize(("engines", "limit"), [(8, 300), (1000, 14_000)])
def test_row_size_stays_within_the_estimate_of_the_retention(engines: int, limit: int) -> None:
    column = columns_of(samples_of(engines, 20, step_s=2))[1]
    rows = rows_of(column.roster, "pool-0") + rows_of(column.roster, "pool-1")
    assert len(encode_part(column, "pool-0", rows, [])) < limit


@pytest.mark.parametrize(
    "data", [b"", b"nonsense", zlib.compress(b"nonsense"), zlib.compress(b"\x97\x02" + b"\xc0" * 6)]
)
def test_invalid_data_is_rejected(data: bytes) -> None:
    with pytest.raises(UnreadableRollupError):
        decode_part(data)


def test_decompression_bomb_is_rejected() -> None:
    with pytest.raises(UnreadableRollupError):
        decode_part(zlib.compress(b"\x00" * (2 * MAX_BYTES)))


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


def test_rows_stored_without_the_newest_figures_are_decoded_with_unknown_ones() -> None:
    column = folded({"failed": 3, "rejected": 2})
    data = encode_part(column, "pool-0", rows_of(column.roster, "pool-0"), [])
    assert decode_part(data).pool[-4:-2] == [3.0, 2.0]
    stored = msgspec.msgpack.decode(zlib.decompress(data))
    stored[5] = stored[5][:-16]
    older = decode_part(zlib.compress(msgspec.msgpack.encode(stored))).pool
    assert [math.isnan(item) for item in older[-5:]] == [math.isnan(value(column, "rejections_per_s"))] + 4 * [True]
