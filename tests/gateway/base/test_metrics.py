"""All metric names of the public contract are exported from the start."""

from __future__ import annotations

from gateway.base.metrics import GatewayMetrics

CONTRACT = {
    "headway_decisions_total": ("pool", "placement", "reason"),
    "headway_requests_total": ("pool", "outcome"),
    "headway_prompt_tokens_total": ("pool",),
    "headway_cached_tokens_total": ("pool",),
    "headway_ttft_seconds": ("pool",),
    "headway_decision_seconds": ("pool",),
    "headway_in_flight_tokens": ("engine",),
    "headway_queued_requests": ("pool",),
    "headway_load_cv": ("pool",),
    "headway_engine_state": ("engine", "state"),
    "headway_rejected_input_total": ("cause",),
}


def test_every_name_of_the_contract_is_exported_from_the_start() -> None:
    text = GatewayMetrics().render().decode()
    for name in CONTRACT:
        assert f"# HELP {name} " in text, name


def test_two_gateways_in_one_process_count_separately() -> None:
    one, other = GatewayMetrics(), GatewayMetrics()
    one.decisions.inc("pool", "least_cost", "least_cost")
    line = 'headway_decisions_total{placement="least_cost",pool="pool",reason="least_cost"} 1.0'
    assert line in one.render().decode()
    assert line not in other.render().decode()
