import msgspec
import pytest

from simulator.sessions.session_run import SessionSpec, run_sessions
from simulator.sessions.systems import SYSTEMS, system_named

SMALL = SessionSpec(workload="chat", system="ours", users=24, seed=1, measured_s=40.0)


def small(**changes: object) -> SessionSpec:
    return msgspec.structs.replace(SMALL, **changes)


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_run_is_reproducible(system: str) -> None:
    spec = small(system=system, dram_gb=5.0)
    report = run_sessions(spec)
    assert report == run_sessions(spec)
    assert report.requests_per_s > 0
    assert report.norm_ms_per_token >= report.tpot_ms * 0.9 > 0
    assert report.max_over_mean_kv >= 1.0


@pytest.mark.parametrize("workload", ["chat", "burst", "agents", "prefill"])
def test_every_workload_is_answered(workload: str) -> None:
    report = run_sessions(small(workload=workload, model="13b"))
    assert report.requests_per_s > 0
    assert 0 < report.ttft_mean_s < 5


@pytest.mark.parametrize(
    "changes",
    [
        {"fresh": True},
        {"cache_on": "half"},
        {"cache_on": "disk", "lead_s": 2.0},
        {"spurious": 0.6},
        {"compressed": True},
        {"hbm_tokens": 30_000},
        {"dram_gb": 0.0},
    ],
    ids=str,
)
@pytest.mark.parametrize("system", ["ours", "symphony"])
def test_every_option_keeps_the_invariants(system: str, changes: dict[str, object]) -> None:
    assert run_sessions(small(system=system, **changes)).requests_per_s > 0


def test_systems_are_compared_on_the_same_requests() -> None:
    reports = [run_sessions(small(system=system)) for system in ("ours", "sticky", "recompute")]
    assert max(report.requests_per_s for report in reports) < 1.1 * min(report.requests_per_s for report in reports)


def test_our_system_without_advisories_equals_on_demand() -> None:
    ours, ondemand = run_sessions(small(missed=1.0)), run_sessions(small(system="ondemand"))
    assert ours == msgspec.structs.replace(ondemand, system="ours")


def test_prefetches_without_a_request_are_wasted() -> None:
    assert run_sessions(small(spurious=1.0)).wasted_bytes > run_sessions(SMALL).wasted_bytes
    assert run_sessions(small(system="ondemand", spurious=1.0)).wasted_bytes == 0.0


def test_kept_caches_beat_recomputing_for_long_contexts() -> None:
    loaded = small(users=160, system="ondemand")
    assert run_sessions(loaded).norm_ms_per_token < run_sessions(small(users=160, system="recompute")).norm_ms_per_token


def test_an_unknown_system_is_reported_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match="ondemand"):
        system_named("fastest")


def test_the_request_rate_counts_responses_to_requests_from_before_the_measured_time() -> None:
    """Past saturation, requests answered in the measured time arrived long before it."""
    saturated = small(system="recompute", users=1_000, dram_gb=0.0)
    assert run_sessions(saturated).requests_per_s > 6.0


@pytest.mark.parametrize("system", ["ours", "symphony", "recompute"])
def test_priority_shortens_the_wait_of_priority_requests(system: str) -> None:
    """If prefills or memory are contended, the two classes differ; without priorities there are no classes."""
    report = run_sessions(small(system=system, users=260, priority=0.3, hbm_tokens=30_000))
    assert report.priority_ttft_s is not None
    assert report.regular_ttft_s is not None
    assert report.priority_ttft_s < report.regular_ttft_s
    assert run_sessions(SMALL).priority_ttft_s is None
