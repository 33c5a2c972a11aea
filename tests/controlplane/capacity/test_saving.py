"""The capacity plan of recorded traffic: engines needed per region, coverage, and the command."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from django.core.management import CommandError, call_command

from controlplane.capacity import demand
from controlplane.capacity.demand import STEP_S, logged_demand
from controlplane.capacity.saving import InstallationPlan, Prices, installation_plan
from controlplane.request_log.models.segment import Segment
from routing.cost.cost_model import DecodeCost, PrefillCost
from routing.policy.policy_document import RoutingPolicy
from tests.controlplane.capacity.some_days import BEGIN, days, pools
from tests.controlplane.request_log.recordings.traffic import record, row

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def some_pools(db: None) -> None:
    pools()


def two_steps(**fields: object) -> dict[str, list[float]]:
    """Return the demand of one request that arrives in the second of two whole steps."""
    record([row(0, arrived_at=BEGIN - 1, pool="chat-us")])
    record([row(0, arrived_at=BEGIN + 10, pool="chat-us", **fields)])
    record([row(0, arrived_at=BEGIN + 2 * STEP_S + 1, pool="chat-us")])
    demand = logged_demand(BEGIN + 2 * STEP_S + 1, 1.0)
    assert demand is not None
    assert demand.since == BEGIN
    return demand.regions


def test_demand_is_prefill_and_a_share_of_the_decode_steps() -> None:
    policy = RoutingPolicy()
    prefill, decode = PrefillCost.of(policy.prefill_cost), DecodeCost.of(policy.decode_cost)
    context = 1500 + 10
    batch = min(demand.MOST_TOGETHER, decode.batch_within(policy.tpot_slo_s, context))
    expected = prefill.seconds(1500, 512) + 20 * decode.seconds(batch, batch * context) / batch
    regions = two_steps()
    assert regions["us"] == pytest.approx([expected / STEP_S, 0.0])
    assert regions["eu"] == [0.0, 0.0]


def test_forwarded_request_counts_in_its_region_of_arrival() -> None:
    regions = two_steps(origin="eu")
    assert regions["us"] == [0.0, 0.0]
    assert regions["eu"][0] > 0


def test_rejected_request_counts_with_the_mean_output_of_others() -> None:
    record([row(0, arrived_at=BEGIN + 20, pool="chat-us", outcome="rejected", output_tokens=0)])
    regions = two_steps()
    one = installation_one()
    assert regions["us"][0] == pytest.approx(2 * one, rel=1e-6)


def plan_at(now: float, utilization: float = 0.7) -> InstallationPlan | None:
    """Return the plan of the log at a time; None if it has no full step."""
    logged = logged_demand(now, 7.0)
    return None if logged is None else installation_plan(logged, Prices(utilization=utilization))


def installation_one() -> float:
    """Return the demand of one successful request."""
    Segment.objects.all().delete()
    return two_steps()["us"][0]


def test_regions_with_shifted_days_save_and_the_range_gives_the_uncertainty() -> None:
    plan = plan_at(days(), utilization=1.0)
    assert plan is not None
    assert plan.plan.own_peaks > plan.plan.shared_peak
    assert 0.3 < plan.plan.saving < 0.6
    assert plan.plan.range is not None
    assert (plan.plan.range.of_days, plan.plan.range.pieces) == (False, 11)
    assert "less than a day" in plan.caveat


def test_long_log_is_sampled_and_reported_as_sampled(monkeypatch: pytest.MonkeyPatch) -> None:
    end = days()
    whole = plan_at(end)
    monkeypatch.setattr(demand, "READ_BYTES", Segment.objects.count() * 200)
    sampled = plan_at(end)
    assert whole is not None
    assert sampled is not None
    assert (whole.demand.every, sampled.demand.every > 1) == (1, True)
    assert "the plan uses one of" in sampled.caveat
    assert sum(sampled.demand.regions["us"]) == pytest.approx(sum(whole.demand.regions["us"]), rel=0.3)


def test_empty_log_gives_no_plan() -> None:
    assert plan_at(BEGIN) is None
    with pytest.raises(CommandError, match="no full 15-minute interval"):
        call_command("plan_capacity")


def test_command_prints_and_writes_the_plan(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    end = days(0.25)
    monkeypatch.setattr(time, "time", lambda: end)
    out = tmp_path / "plan.json"
    call_command("plan_capacity", "--reserved", "1", "--on-demand", "3", "--json", str(out))
    said = capsys.readouterr().out
    assert "saving" in said
    assert "cheapest mix" in said
    plan = json.loads(out.read_text())
    assert plan["own_cost"] == pytest.approx(plan["own_peaks"])
    assert plan["mixed_cost"] <= plan["shared_cost"]


@pytest.mark.parametrize("options", [("--days", "0"), ("--days", "99"), ("--utilization", "2"), ("--reserved", "0")])
def test_command_rejects_invalid_options(options: tuple[str, str]) -> None:
    days(0.1)
    with pytest.raises(CommandError):
        call_command("plan_capacity", *options)
