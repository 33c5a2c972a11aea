"""Cases of the shared-prefix measurement.

Generated shared prefixes in small blocks: their shared and unique parts, and the report of a run.
"""

from __future__ import annotations

import msgspec
import pytest

from bench.evidence.chapters.routing.shared_prefix import seconds
from bench.evidence.measure.routing import shared_prefix
from bench.evidence.plots.shared_prefix import STYLES
from bench.evidence.shared_prefix_runs import SharedPrefixRun, SharedPrefixWorkload, profile_of, run_row
from routing.policy.policy_document import Stage
from routing.registry import build_placement, build_queue_order
from simulator.baselines.registry import PLACEMENTS
from simulator.workloads.shared_prefix import SharedPrefixShape


def test_every_rule_is_valid() -> None:
    for rule in shared_prefix.RULES.values():
        build_placement(Stage(name=rule.placement, params=rule.params), PLACEMENTS)
        build_queue_order(Stage(name=rule.order))


def test_each_sweep_varies_one_parameter() -> None:
    usual = SharedPrefixRun(placement="", tokens_per_s=0)
    named = {"placement", "order", "placement_params", "eviction", "tokens_per_s", "seed"}
    for asked in shared_prefix.sweep_runs():
        field, values = shared_prefix.SWEEPS[asked.kind]
        changed = {
            item.name
            for item in msgspec.structs.fields(SharedPrefixRun)
            if getattr(asked.run, item.name) != getattr(usual, item.name)
        }
        assert changed - named <= {field}
        assert getattr(asked.run, field) == asked.value
        assert asked.value in values


def test_default_cache_is_the_kv_part_of_90_percent_of_gpu_memory() -> None:
    _, sizes = shared_prefix.SWEEPS["cache"]
    assert abs(sizes[-1] / SharedPrefixRun(placement="", tokens_per_s=0).cache_tokens - 1) < 0.05


def test_every_swept_rule_has_a_chart_style() -> None:
    assert set(shared_prefix.SWEPT) | set(shared_prefix.BATCH_RULES) <= STYLES.keys()


def test_diverging_seeds_are_shown_as_a_range() -> None:
    assert seconds([0.4, 0.5]) == "0.45 s"
    assert seconds([0.4, 7.5, 35.0]) == "0.40 to 35.00 s"


_SHAPE = SharedPrefixShape(groups=5, prompts=4, order="round_robin", ratio=0.5)


def _short(**changed: object) -> SharedPrefixRun:
    values: dict[str, object] = {"placement": "least_cost", "tokens_per_s": 20_000, "prompts": 2, "qps": 20.0}
    return SharedPrefixRun(**(values | changed))  # type: ignore[arg-type]  # the test names the fields


def test_prompts_of_a_group_share_only_the_shared_part() -> None:
    requests = SharedPrefixWorkload(_SHAPE, 32, seed=1)
    for number, keys in enumerate(requests.keys):
        length = _SHAPE.lengths[number % 5]
        assert requests.prompt_tokens[number] == length == 32 * len(keys)
        for other, others in enumerate(requests.keys[:number]):
            common = sum(one == two for one, two in zip(keys, others, strict=False))
            assert common == (length // 64 if other % 5 == number % 5 else 0)


def test_every_prompt_but_the_first_of_a_group_can_hit_the_shared_part() -> None:
    requests = SharedPrefixWorkload(_SHAPE, 32, seed=1)
    assert requests.infinite_hit_rate(0) == pytest.approx(0.5 * 3 / 4)


def test_same_seed_gives_the_same_requests() -> None:
    random = SharedPrefixShape(groups=5, prompts=4)
    one, two, other = (SharedPrefixWorkload(random, 32, seed=seed) for seed in (1, 1, 2))
    assert one.keys == two.keys
    assert one.arrivals(None, 5.0) == two.arrivals(None, 5.0)
    assert one.keys != other.keys


def test_block_size_changes_keys_and_not_arrivals() -> None:
    fine, coarse = (SharedPrefixWorkload(_SHAPE, size, seed=1) for size in (32, 64))
    assert [len(keys) for keys in fine.keys] == [2 * len(keys) for keys in coarse.keys]
    assert [arrival.request.arrived_s for arrival in fine.arrivals(None, 5.0)] == [
        arrival.request.arrived_s for arrival in coarse.arrivals(None, 5.0)
    ]


def test_engines_take_constant_time_per_token_and_none_for_hits() -> None:
    profile = profile_of(_short(tokens_per_s=7000))
    assert profile.prefill_s(7000, 0) == pytest.approx(1.0)
    assert profile.prefill_s(7000, 3500) == pytest.approx(0.5)


def test_run_finishes_all_requests_without_impossible_hits() -> None:
    row = run_row(_short())
    assert row["finished"] == 256
    assert 0 < float(str(row["hit_rate"])) <= float(str(row["hit_rate_infinite"]))
    assert float(str(row["ttft_p50_s"])) <= float(str(row["ttft_p95_s"]))


def test_responses_take_time_on_engines_that_decode() -> None:
    row = run_row(_short(engine_model="chunked", block_tokens=64, output_tokens=8))
    assert row["finished"] == 256
    assert float(str(row["e2e_p50_s"])) > float(str(row["ttft_p50_s"])) + 7 * 0.0185
