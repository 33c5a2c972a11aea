"""Samples of gateways, for tests."""

from __future__ import annotations

from typing import Any

from gateway.contracts.fleet_sample import EngineSample, FleetSample, PoolSample

START = 1_800_000_000.0


def engine(name: str, **fields: Any) -> EngineSample:
    """Return a serving engine."""
    known: dict[str, Any] = {
        "engine_id": name,
        "name": name,
        "pool_id": "p",
        "incarnation": 1,
        "state": "serving",
        "reason": "",
        "since": START,
        "in_flight_tokens": 1000,
        "in_flight_s": 1.0,
        "running": 2,
        "bound": 1,
        "kv_usage": 0.5,
        "prompt_tokens_total": 0,
        "cached_tokens_total": 0,
        "index_trust": "exact",
        "report_age_s": 0.1,
    }
    return EngineSample(**{**known, **fields})


def pool(**fields: Any) -> PoolSample:
    """Return a pool with little traffic."""
    known: dict[str, Any] = {
        "pool_id": "p",
        "name": "p",
        "region": "here",
        "served_model": "m",
        "placement": "least_cost",
        "order": "fifo",
        "policy_version": 1,
        "ttft_slo_s": 3.0,
        "tokens_per_s": 12_000.0,
        "unbound": 1,
        "unbound_tokens": 100,
        "oldest_wait_s": 0.5,
        "load_cv": 0.0,
        "requests_per_s": 2.0,
        "prompt_tokens_per_s": 100.0,
        "ttft_p50_s": None,
        "ttft_p90_s": None,
        "ttft_p99_s": None,
        "on_time_share": None,
        "hit_share": None,
        "late": 0,
    }
    return PoolSample(**{**known, **fields})


def sample(at: float, *engines: EngineSample, pools: tuple[PoolSample, ...] = (), **fields: Any) -> FleetSample:
    """Return the sample of one gateway."""
    known: dict[str, Any] = {"seq": 1, "window_s": 15.0, "snapshot_version": 1}
    return FleetSample(**{**known, **fields}, at=at, engines=engines, pools=pools)
