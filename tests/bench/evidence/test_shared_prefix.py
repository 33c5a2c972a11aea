"""Cases of the shared-prefix measurement."""

from __future__ import annotations

import msgspec

from bench.evidence.chapters.routing.shared_prefix import seconds
from bench.evidence.measure.routing import shared_prefix
from bench.evidence.plots.shared_prefix import STYLES
from bench.evidence.shared_prefix_runs import SharedPrefixRun
from routing.policy.policy_document import Stage
from routing.registry import build_placement, build_queue_order
from simulator.baselines.registry import PLACEMENTS


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
