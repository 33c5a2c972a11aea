"""All metric names of the public contract are exported from the start.

Metric families render their counts in Prometheus text format.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from gateway.base.metric_families import CounterFamily, GaugeFamily, HistogramFamily
from gateway.base.metrics import GatewayMetrics

TYPES: dict[type, str] = {CounterFamily: "counter", GaugeFamily: "gauge", HistogramFamily: "histogram"}
CONTRACT = {
    "headway_decisions_total": ("pool", "placement", "reason"),
    "headway_requests_total": ("pool", "outcome"),
    "headway_prompt_tokens_total": ("pool", "model_name"),
    "headway_cached_tokens_total": ("pool", "model_name"),
    "headway_output_tokens_total": ("pool", "model_name"),
    "headway_ttft_seconds": ("pool", "model_name"),
    "headway_tpot_seconds": ("pool", "model_name"),
    "headway_itl_seconds": ("pool", "model_name"),
    "headway_e2e_seconds": ("pool", "model_name"),
    "headway_queue_wait_seconds": ("pool", "model_name"),
    "headway_decision_seconds": ("pool",),
    "headway_in_flight_tokens": ("engine",),
    "headway_queued_requests": ("pool",),
    "headway_load_cv": ("pool",),
    "headway_engine_state": ("engine", "state"),
    "headway_rejected_input_total": ("cause",),
}


def test_every_name_of_the_contract_is_exported_from_the_start() -> None:
    metrics = GatewayMetrics()
    text, labels = metrics.render().decode(), {family._name: family._labels for family in families(metrics)}
    for name, wanted in CONTRACT.items():
        assert f"# HELP {name} " in text, name
        assert labels[name] == wanted


def families(metrics: GatewayMetrics) -> list[Any]:
    return [family for family in vars(metrics).values() if type(family) in TYPES]


def test_the_documentation_lists_every_metric_with_its_labels() -> None:
    listed = (Path(__file__).parents[3] / "docs" / "metrics.md").read_text()
    rows = {
        f"| `{family._name}` | {TYPES[type(family)]} | {', '.join(family._labels)} | {family._help} |"
        for family in families(GatewayMetrics())
    }
    documented = {line for line in listed.splitlines() if line.startswith("| `headway_")}
    assert documented == rows


def test_two_gateways_in_one_process_count_separately() -> None:
    one, other = GatewayMetrics(), GatewayMetrics()
    one.decisions.inc("pool", "least_cost", "least_cost")
    line = 'headway_decisions_total{placement="least_cost",pool="pool",reason="least_cost"} 1.0'
    assert line in one.render().decode()
    assert line not in other.render().decode()


def _samples(registry: CollectorRegistry) -> dict[tuple[str, str], float]:
    text = generate_latest(registry).decode()
    return {
        (sample.name, ",".join(f"{key}={value}" for key, value in sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_a_counter_sums_per_label_values() -> None:
    registry = CollectorRegistry()
    family = CounterFamily(registry, "things_total", "Things.", ("pool",))
    family.inc("a")
    family.inc("a", amount=2.5)
    family.inc("b")
    assert _samples(registry) == {("things_total", "pool=a"): 3.5, ("things_total", "pool=b"): 1.0}
    assert family.value("a") == 3.5
    assert family.value("never") == 0.0


def test_a_gauge_keeps_its_last_value_until_it_is_removed() -> None:
    registry = CollectorRegistry()
    family = GaugeFamily(registry, "level", "Level.", ("engine",))
    family.set("e", value=1.0)
    family.set("e", value=7.0)
    family.set("gone", value=1.0)
    family.remove("gone")
    family.remove("never there")
    assert _samples(registry) == {("level", "engine=e"): 7.0}


def test_a_histogram_counts_cumulatively_and_includes_its_bounds() -> None:
    registry = CollectorRegistry()
    family = HistogramFamily(registry, "took_seconds", "Time.", ("pool",), (0.1, 1.0))
    for value in (0.05, 0.1, 0.5, 30.0):
        family.observe("a", value=value)
    samples = _samples(registry)
    assert samples["took_seconds_bucket", "le=0.1,pool=a"] == 2
    assert samples["took_seconds_bucket", "le=1.0,pool=a"] == 3
    assert samples["took_seconds_bucket", "le=+Inf,pool=a"] == 4
    assert samples["took_seconds_count", "pool=a"] == family.count("a") == 4
    assert samples["took_seconds_sum", "pool=a"] == 30.65


def test_special_characters_in_label_values_are_escaped() -> None:
    registry = CollectorRegistry()
    CounterFamily(registry, "things_total", "Things.", ("pool",)).inc('a"\n}\\')
    assert _samples(registry) == {("things_total", 'pool=a"\n}\\'): 1.0}
