"""Merged samples of several gateways: work adds up, problems at any gateway show, and shares cover all requests."""

from __future__ import annotations

from random import Random

import msgspec
import pytest

from controlplane.platform.live_fleet.fleet_together import FleetTogether
from gateway.contracts.fleet_sample import EngineFaults, FleetSample, Lateness, PoolSample, PrefixCounts
from gateway.contracts.outcomes import OutcomeCounts, PoolOutcomes
from gateway.pools.traffic.traffic_window import TrafficWindow
from tests.controlplane.platform.live_fleet.some_samples import START, engine, pool, sample
from tests.gateway.decision_records import ended_record


def together(**samples: FleetSample) -> FleetSample:
    merged = FleetTogether().sample(samples)
    assert merged is not None
    return merged


def test_no_gateway_gives_no_sample_and_a_single_one_is_shown_unchanged() -> None:
    assert FleetTogether().sample({}) is None
    alone = sample(START, engine("a", prompt_tokens_total=70, cached_tokens_total=7), pools=(pool(),))
    assert together(only=alone) == alone


def test_work_of_all_gateways_on_an_engine_adds_up() -> None:
    one = engine("a", running=3, bound=2, in_flight_tokens=500, in_flight_s=0.5, oldest_bound_s=1.0)
    other = engine("a", running=4, bound=0, in_flight_tokens=100, in_flight_s=0.25, oldest_bound_s=0.0)
    (seen,) = together(g1=sample(START, one), g2=sample(START, other)).engines
    assert (seen.running, seen.bound, seen.in_flight_tokens, seen.in_flight_s) == (7, 2, 600, 0.75)
    assert seen.oldest_bound_s == 1.0


def test_engines_known_to_one_gateway_are_included_in_order_of_names() -> None:
    merged = together(g1=sample(START, engine("b")), g2=sample(START, engine("c"), engine("a")))
    assert [item.name for item in merged.engines] == ["a", "b", "c"]


@pytest.mark.parametrize(
    ("one", "other", "state"),
    [
        ("serving", "serving", "serving"),
        ("lost", "lost", "lost"),
        ("lost", "serving", "degraded"),
        ("serving", "hot", "hot"),
        ("unknown", "serving", "serving"),
        ("starting", "serving", "starting"),
        ("degraded", "hot", "degraded"),
        ("draining", "lost", "draining"),
        ("quarantined", "serving", "degraded"),
        ("quarantined", "quarantined", "quarantined"),
        ("quarantined", "lost", "lost"),
        ("quarantined", "maintenance", "maintenance"),
    ],
)
def test_engine_state_shows_problems_at_any_gateway(one: str, other: str, state: str) -> None:
    for first, second in ((one, other), (other, one)):
        samples = {
            "g1": sample(START, engine("a", state=first, reason=f"r {first}", since=START - 9)),
            "g2": sample(START, engine("a", state=second, reason=f"r {second}", since=START - 5)),
        }
        assert together(**samples).engines[0].state == state


def test_engine_lost_at_one_gateway_names_that_gateway() -> None:
    lost = engine("a", state="lost", reason="connection refused", since=START - 3)
    (seen,) = together(**{"gw-1": sample(START, engine("a")), "gw-2": sample(START, lost)}).engines
    assert seen.reason == "lost by gw-2, served by others: connection refused"
    assert seen.since == START - 3


def test_engine_suspected_by_one_gateway_names_that_gateway() -> None:
    suspected = engine("a", state="quarantined", reason="suspected: 2 streams have produced nothing for 4.1 s")
    (seen,) = together(**{"gw-1": sample(START, suspected), "gw-2": sample(START, engine("a"))}).engines
    assert seen.reason == (
        "quarantined by gw-1, served by others: suspected: 2 streams have produced nothing for 4.1 s"
    )


def test_lowest_trust_and_newest_memory_report_are_shown() -> None:
    one = engine("a", index_trust="exact", kv_usage=0.2, report_age_s=3.0)
    other = engine("a", index_trust="blind", index_trust_reason="no events", kv_usage=0.9, report_age_s=0.2)
    (seen,) = together(g1=sample(START, one), g2=sample(START, other)).engines
    assert (seen.index_trust, seen.index_trust_reason, seen.kv_usage, seen.report_age_s) == (
        "blind",
        "no events",
        0.9,
        0.2,
    )


def test_token_counters_only_rise_whatever_gateways_join_leave_or_restart() -> None:
    all_, at, totals = FleetTogether(), START, []
    history = (
        {"g1": 100},
        {"g1": 150, "g2": 9_000},
        {"g1": 160, "g2": 9_030},
        {"g2": 9_040},
        {"g1": 5, "g2": 9_040},
        {"g1": 25, "g2": 10},
    )
    for moment in history:
        at += 0.5
        samples = {name: sample(at, engine("a", prompt_tokens_total=total)) for name, total in moment.items()}
        merged = all_.sample(samples)
        assert merged is not None
        totals.append(merged.engines[0].prompt_tokens_total)
    assert totals == [100, 150, 190, 200, 200, 220]


def test_rates_and_queues_of_a_pool_add_up() -> None:
    one = pool(rejections_per_s={"queue_full": 1.0}, bound=2, dispatched_at_once_per_s=1.0, queue_wait_mean_s=1.0)
    other = pool(
        rejections_per_s={"queue_full": 0.5, "infeasible": 2.0},
        bound=3,
        dispatched_waited_per_s=3.0,
        queue_wait_mean_s=2.0,
        oldest_wait_s=4.0,
        queued_s=2.5,
        policy_version=7,
    )
    (seen,) = together(g1=sample(START, pools=(one,)), g2=sample(START, pools=(other,))).pools
    assert (seen.requests_per_s, seen.unbound, seen.unbound_tokens, seen.bound) == (4.0, 2, 200, 5)
    assert seen.rejections_per_s == {"infeasible": 2.0, "queue_full": 1.5}
    assert (seen.oldest_wait_s, seen.queue_wait_mean_s, seen.queued_s, seen.policy_version) == (4.0, 1.75, 2.5, 7)


def test_shares_are_weighted_by_requests_and_tokens() -> None:
    one = pool(on_time_share=1.0, judged=30, hit_share=0.5, prompt_tokens_per_s=300.0, requests_per_s=3.0)
    one = msgspec.structs.replace(one, approximate_share=0.5)
    other = pool(on_time_share=0.0, judged=10, late=10, hit_share=0.9, prompt_tokens_per_s=100.0)
    other = msgspec.structs.replace(other, approximate_share=0.1, requests_per_s=1.0)
    idle = pool()
    (seen,) = together(
        **{f"g{n}": sample(START, pools=(one_pool,)) for n, one_pool in enumerate((one, other, idle))}
    ).pools
    assert seen.on_time_share == 0.75
    assert seen.late == 10
    assert seen.hit_share == pytest.approx(0.6)
    assert seen.approximate_share == pytest.approx(0.4)


def traffic(ttfts: list[float]) -> PoolSample:
    window = TrafficWindow()
    for ttft_s in ttfts:
        window.add(ended_record(100.0, ttft_s, prompt=10, cached=0, engine_id=""))
    seen = window.summary(100.0)
    return pool(ttft_p50_s=seen.ttft_p50_s, ttft_count=seen.ttft_count, ttft_points=seen.ttft_points)


@pytest.mark.parametrize("sizes", [(1, 1), (3, 40), (500, 5), (2000, 3000)])
def test_percentiles_cover_the_requests_of_all_gateways(sizes: tuple[int, int]) -> None:
    rng = Random(7)
    fast = [rng.expovariate(5.0) for _ in range(sizes[0])]
    slow = [1.0 + rng.expovariate(1.0) for _ in range(sizes[1])]
    (seen,) = together(g1=sample(START, pools=(traffic(fast),)), g2=sample(START, pools=(traffic(slow),))).pools
    ordered = sorted(fast + slow)
    for share, value in ((0.5, seen.ttft_p50_s), (0.9, seen.ttft_p90_s), (0.99, seen.ttft_p99_s)):
        assert value is not None
        rank = sum(item <= value for item in ordered) / len(ordered)
        assert share - 0.02 <= rank <= share + 0.02 + 1 / len(ordered)
    assert seen.ttft_count == sum(sizes)


def test_load_cv_covers_the_work_of_all_gateways() -> None:
    even = (engine("a", in_flight_tokens=9000), engine("b", in_flight_tokens=1000))
    odd = (engine("a", in_flight_tokens=1000), engine("b", in_flight_tokens=9000))
    samples = {
        "g1": sample(START, *even, pools=(pool(load_cv=0.8),)),
        "g2": sample(START, *odd, pools=(pool(load_cv=0.8),)),
    }
    assert together(**samples).pools[0].load_cv == 0.0
    samples["g2"] = sample(START, *even, pools=(pool(load_cv=0.8),))
    assert together(**samples).pools[0].load_cv == pytest.approx(0.8)


def test_prefixes_of_all_gateways_are_listed_busiest_first() -> None:
    one = pool(
        prefixes=(
            PrefixCounts(key="k", work_s_by_engine={"a": 1.0}),
            PrefixCounts(key="z", work_s_by_engine={"a": 1.5}),
        )
    )
    other = pool(prefixes=(PrefixCounts(key="k", work_s_by_engine={"a": 1.0, "b": 2.0}, tokens=9),))
    (seen,) = together(g1=sample(START, pools=(one,)), g2=sample(START, pools=(other,))).pools
    assert [prefix.key for prefix in seen.prefixes] == ["k", "z"]
    assert (seen.prefixes[0].work_s_by_engine, seen.prefixes[0].tokens) == ({"a": 2.0, "b": 2.0}, 9)


def test_merged_sample_has_the_worst_lateness_and_the_oldest_snapshot() -> None:
    late = Lateness(since=START, lapses=3, away_s=4.0, rejects=False)
    less = msgspec.structs.replace(late, away_s=1.0)
    merged = together(
        g1=sample(START, lateness=less, snapshot_version=8),
        g2=sample(START + 1, lateness=late, snapshot_version=9),
        g3=sample(START, snapshot_version=9),
    )
    assert (merged.lateness, merged.snapshot_version, merged.at) == (late, 8, START + 1)


def outcomes(on_time: int, late: int = 0, **tenants: int) -> PoolSample:
    rows = {name: OutcomeCounts(on_time=requests) for name, requests in tenants.items()}
    return pool(outcomes=PoolOutcomes(total=OutcomeCounts(on_time=on_time, late=late), tenants=rows))


def test_outcomes_of_a_pool_add_up_through_restarts_and_silence_of_its_gateways() -> None:
    merger = FleetTogether()

    def seen(**pools: PoolSample) -> PoolOutcomes:
        merged = merger.sample({name: sample(START, pools=(item,)) for name, item in pools.items()})
        assert merged is not None
        assert merged.pools[0].outcomes is not None
        return merged.pools[0].outcomes

    first = seen(g1=outcomes(10, 1, acme=10))
    assert first.total == OutcomeCounts(on_time=10, late=1)
    # The second gateway's requests so far are no part of what ends from here on.
    assert seen(g1=outcomes(12, 1, acme=12), g2=outcomes(500, acme=500)).total.on_time == 12
    # It restarts, and then g1 is silent while it counts on.
    assert seen(g1=outcomes(12, 1, acme=12), g2=outcomes(3, demo=3)).tenants["demo"].on_time == 3
    assert seen(g2=outcomes(4, demo=4)).total.on_time == 16
    last = seen(g1=outcomes(22, 1, acme=22), g2=outcomes(4, demo=4))
    assert last.total == OutcomeCounts(on_time=26, late=1)
    assert last.since(first).tenants == {"acme": OutcomeCounts(on_time=12), "demo": OutcomeCounts(on_time=4)}


def test_faults_of_an_engine_add_up_and_restarts_are_those_of_one_process() -> None:
    one = EngineFaults(tokenizer_late=2, tokenizer_late_s=1.5, broken=3, restarts=1, evictions=7)
    other = EngineFaults(tokenizer_late=1, tokenizer_late_s=5.0, unanswered=4, restarts=1)
    merged = together(g1=sample(START, engine("a", faults=one)), g2=sample(START, engine("a", faults=other)))
    assert merged.engines[0].faults == EngineFaults(
        tokenizer_late=3, tokenizer_late_s=6.5, broken=3, unanswered=4, restarts=1, evictions=7
    )
    assert together(g1=sample(START, engine("a")), g2=sample(START, engine("a"))).engines[0].faults is None
