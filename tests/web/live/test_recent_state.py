"""The verdict's input from the last seconds: means, and starving engines."""

from __future__ import annotations

import msgspec
import pytest

from gateway.contracts.cache_locality_sample import PoolCacheLocality, SharedPrefix
from gateway.contracts.fleet_sample import FleetSample
from tests.web.fake_fleet import FakeFleet
from web.live.history import FleetHistory, ScopedHistory, missing_prefix
from web.live.recent_state import RecentState

START = 1_800_000_000.0


def recent_of(samples: list[FleetSample]) -> RecentState:
    history = FleetHistory()
    for sample in samples:
        history.add(sample)
    return ScopedHistory(history, None).recent()


def stretch(seconds: int, *, waiting: int, e_02: dict[str, object]) -> list[FleetSample]:
    """Return a sample a second with `waiting` queued requests; the second engine has the fields `e_02`."""
    fleet, samples = FakeFleet(4, 1, events=False), []
    for second in range(seconds):
        sample = fleet.sample_at(float(second), START)
        engines = list(sample.engines)
        engines[1] = msgspec.structs.replace(engines[1], **e_02)
        engines[0] = msgspec.structs.replace(engines[0], running=2, in_flight_s=float(second % 2))
        pool = msgspec.structs.replace(sample.pools[0], unbound=waiting, bound=0)
        samples.append(msgspec.structs.replace(sample, engines=tuple(engines), pools=(pool,)))
    return samples


IDLE = {"running": 0, "bound": 0, "in_flight_s": 0.0, "in_flight_tokens": 0}


def test_idle_engine_starves_while_others_queue() -> None:
    assert recent_of(stretch(48, waiting=3, e_02=IDLE)).nothing_s == {"engine-e-02": 48.0}


@pytest.mark.parametrize(
    ("seconds", "waiting", "e_02"), [(48, 0, IDLE), (15, 3, IDLE), (48, 3, {"running": 1}), (48, 3, {"bound": 1})]
)
def test_idle_engine_is_not_reported_without_a_queue_or_after_seconds(
    seconds: int, waiting: int, e_02: dict[str, object]
) -> None:
    assert "engine-e-02" not in recent_of(stretch(seconds, waiting=waiting, e_02=IDLE | e_02)).nothing_s


def test_work_is_the_mean_of_the_last_15_seconds() -> None:
    before, after = (
        stretch(30, waiting=0, e_02={"in_flight_s": 9.0}),
        stretch(60, waiting=0, e_02={"in_flight_s": 2.0}),
    )
    recent = recent_of([*before, *after[30:]])
    assert recent.work_s["engine-e-02"] == pytest.approx(2.0)
    assert recent.work_s["engine-e-01"] == pytest.approx(0.5)


def test_missing_prefix_is_the_most_used_one_that_most_others_hold() -> None:
    def prefix(key: str, requests: int, *holders: str) -> SharedPrefix:
        return SharedPrefix(key, -1, 0, 1, 4, requests, holders)

    pool = PoolCacheLocality(
        pool_id="p", placement="least_cost", policy_version=1, block_tokens=16, requests=9, sampled=9, span_s=60.0,
        engines=(), accepting=("a", "b", "c", "d"),
        prefixes=(prefix("aa", 5, "a", "b", "c", "d"), prefix("6243049f", 3, "a", "b", "d"), prefix("cc", 9, "a")),
    )  # fmt: skip
    assert missing_prefix(pool, "c") == "624304"
    assert missing_prefix(pool, "a") == ""
