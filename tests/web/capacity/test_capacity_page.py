"""The Capacity page: its visibility, its texts, and rejected input."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from django.test import Client
from django.utils import timezone

from controlplane.capacity.demand import MINUTE_S, STEP_S, LoggedDemand, logged_demand
from controlplane.capacity.job import JOB, MINUTES, _due
from controlplane.capacity.saving import FleetSize, Prices, installation_plan
from controlplane.fleet.models.engine import Engine
from controlplane.fleet.models.pool import Pool
from controlplane.platform.jobs.calculation import LEASE, start_calculation
from controlplane.platform.jobs.lease import finish, take_waiting
from controlplane.platform.models.job_run import JobRun, JobState
from tests.controlplane.capacity.some_days import BEGIN, LARGE, days, pools
from tests.controlplane.request_log.recordings.traffic import record, row
from tests.web.role_clients import ROLES, client_of, make_person
from web.capacity.page import _moments, demand_picture, finding, sizes

pytestmark = pytest.mark.django_db


@pytest.fixture
def viewer(pool: Pool) -> Client:
    pools()
    return client_of(make_person("viewer"))


def words(text: bytes) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", text.decode()))


@pytest.mark.parametrize("role", ROLES)
def test_capacity_page_requires_a_role_in_all_pools(pool: Pool, role: str) -> None:
    answer = client_of(make_person(role, pool)).get("/regions/capacity")
    assert answer.status_code == (200 if role in ("viewer", "operator", "admin", "superuser") else 403)


def test_empty_page_states_what_is_missing(viewer: Client, settings: Any) -> None:
    assert "No requests are recorded yet" in words(viewer.get("/regions/capacity").content)
    record([row(0, arrived_at=BEGIN + 10, pool="chat-us")])
    assert re.search(r"The first plan needs 3 min of requests; it appears soon after \d\d:\d\d UTC", page_of(viewer))
    assert "Registered 3 engines" in page_of(viewer)
    assert "Plan from" not in page_of(client_of(make_person("operator")))
    settings.RECORDING_BYTES = 0
    assert "Recording is off" in page_of(viewer)


def page_of(client: Client, query: str = "") -> str:
    return words(client.get(f"/regions/capacity?{query}").content)


def read_log(end: float) -> None:
    """Store the demand that the job reads at this time."""
    start_calculation(JOB, {"days": 30})
    lease = take_waiting(JOB, LEASE)[0]
    finish(lease, outcome={})
    demand = logged_demand(end, 30)
    JobRun.objects.filter(pk=lease.run_id).update(memory={"result": msgspec.to_builtins(demand)})


def test_page_shows_the_saving_and_its_uncertainty(viewer: Client) -> None:
    read_log(days(0.3))
    page = page_of(viewer, "reserved=2&on_demand=5")
    assert re.search(r"Sharing regions saves \d+\.\d\s% of the engines", page)
    assert "with 90 % confidence, resampled from 3 windows of two hours" in page
    assert "less than a day" in page
    assert re.search(r"Cheapest mix [\d.]+ \$/h; [\d.]+ reserved, the rest on demand", page)


def demand_of(**regions: list[float]) -> LoggedDemand:
    return LoggedDemand(dict(regions), BEGIN, BEGIN + STEP_S * len(next(iter(regions.values()))), 9, 1)


@pytest.mark.parametrize(
    ("demand", "title", "sentence"),
    [
        ({"us": [0.7, 1.4]}, "Short by 1.0 engines at the peak", "At a target of 70.0 % busy, it needs 2.0 engines"),
        ({"us": [0.35, 0.14]}, "0.5 engines to spare at the peak", "needs 0.5 engines"),
        (
            {"us": [1.4, 0.0], "eu": [0.0, 0.7]},
            "Sharing covers regions that are short alone",
            "Alone, short at its own peak: us by 1.0.",
        ),
        ({"us": [0.7, 0.0], "eu": [0.0, 0.7]}, "Each region covers its own peak; sharing frees 1.0 engines", "2 are"),
        ({"us": [2.1, 0.0], "eu": [0.7, 0.0]}, "All regions together are short by 2.0 engines", "4.0 engines"),
    ],
)
def test_title_is_a_finding_about_one_region_and_about_several(
    viewer: Client, demand: dict[str, list[float]], title: str, sentence: str
) -> None:
    Engine.objects.exclude(pool__region__slug__in=demand).delete()
    shown = finding(installation_plan(demand_of(**demand), Prices(utilization=0.7)))
    assert shown[0].startswith(title)
    assert sentence in shown[1]


def test_engines_are_compared_with_one_fewer_and_one_more(viewer: Client) -> None:
    plan = installation_plan(demand_of(us=[1.0, 2.4], eu=[1.0, 0.0], asia=[0.0, 0.0]), Prices(utilization=0.7))
    assert sizes(plan) == [
        ("one lost", FleetSize(2, 1.2, 0.5, 0.25)),
        ("registered", FleetSize(3, pytest.approx(0.8), 0.25, 0.0)),
        ("one more", FleetSize(4, 0.6, 0.0, 0.0)),
    ]


def test_demand_now_is_the_one_of_automation_until_there_is_a_plan(viewer: Client) -> None:
    assert "not measured by Automation yet" in page_of(viewer)
    for slug, demand in (("chat-us", 1.25), ("chat-eu", 0.5)):
        pool = Pool.objects.get(slug=slug)
        JobRun.objects.create(job="scaling", shard=pool.pk, plan={"demand": demand}, started_at=timezone.now())
    assert "Demand now 1.8 busy engines, as on Automation" in page_of(viewer)
    read_log(days(0.1))
    assert "Demand now" not in page_of(viewer)


def test_tiles_and_chart_show_the_same_series(viewer: Client) -> None:
    Engine.objects.exclude(pool__region__slug="us").delete()
    plan = installation_plan(demand_of(us=[0.0, 2.7, 1.9]), Prices(utilization=0.9))
    assert (plan.peak, plan.total[-1]) == (2.7, 1.9)
    assert plan.plan.shared_peak == pytest.approx(3.0)
    picture = demand_picture(plan)
    # One region: no sum of regions and no sum of their peaks. The registered engine is drawn below the peak.
    assert [(style, points.split()[1]) for _, style, points in picture["lines"]] == [("s1", "53.50,8.95")]
    assert [style for style, _ in picture["limits"]] == ["present", "target"]
    assert picture["summary"] == "Demand peaks at 2.7 busy engines; 1 engine registered"


def test_limits_far_above_the_demand_are_stated_and_not_drawn(viewer: Client) -> None:
    picture = demand_picture(installation_plan(demand_of(us=[0.01, 0.02]), Prices()))
    assert picture["limits"] == []
    assert [name for name, _ in picture["key"]][1:] == [
        "registered engines 3.0, above the chart",
        "70.0\u202f% of them 2.1, above the chart",
    ]


@pytest.mark.parametrize(
    ("steps", "step_s", "labels"),
    [
        (3, MINUTE_S, ["00:00", "00:01"]),
        (4, STEP_S, ["00:00", "00:15", "00:30"]),
        (384, STEP_S, ["1 Mar", "2 Mar", "3 Mar", "4 Mar"]),
    ],
)
def test_no_label_of_the_time_axis_repeats(steps: int, step_s: float, labels: list[str]) -> None:
    since = datetime(2026, 3, 1, tzinfo=UTC).timestamp()
    assert [tick.words for tick in _moments(since, steps, step_s)] == labels


def test_an_operator_reads_the_log_and_sees_its_progress(pool: Pool, viewer: Client) -> None:
    assert viewer.post("/regions/capacity").status_code == 403
    operator = client_of(make_person("operator"))
    assert operator.post("/regions/capacity").status_code == 303
    JobRun.objects.filter(job=JOB).update(progress={"done": 41, "of": 100})
    assert "Reading the request log, 41 %" in page_of(operator)
    assert operator.post("/regions/capacity").status_code == 409
    take = take_waiting(JOB, LEASE)[0]
    finish(take, outcome={"reason": "it took too long"}, state=JobState.FAILED)
    assert "The last reading failed: it took too long." in page_of(operator, "fragment=1")


def test_a_plan_by_the_minute_needs_no_full_quarter_of_an_hour(viewer: Client) -> None:
    for number in range(26):
        record([row(0, arrived_at=BEGIN + 20.0 * number, pool="chat-us", **LARGE)])
    operator = client_of(make_person("operator"))
    assert "Plan from the last" not in page_of(operator)
    assert operator.post("/regions/capacity").status_code == 303
    lease = take_waiting(JOB, LEASE)[0]
    assert JobRun.objects.get(pk=lease.run_id).inputs == {"minutes": MINUTES}
    finish(lease, outcome={})
    demand = logged_demand(BEGIN + 500.0, 1.0, step_s=MINUTE_S)
    assert demand is not None
    assert (demand.since, demand.until, len(demand.regions["us"])) == (BEGIN + 60, BEGIN + 480, 7)
    JobRun.objects.filter(pk=lease.run_id).update(memory={"result": msgspec.to_builtins(demand)})
    page = page_of(viewer).replace("\u202f", " ")
    assert "The log covers 7 min, less than a day" in page
    assert "busy engines, mean of each minute" in page
    assert re.search(r"from \d\d:\d\d UTC it is by the quarter of an hour", page)
    assert "at assumed prices: $37.56/h reserved" in page


def test_plans_by_the_minute_come_by_themselves_until_four_quarters_of_an_hour_are_full(viewer: Client) -> None:
    record([row(0, arrived_at=BEGIN + 100.0, pool="chat-us")])
    record([row(0, arrived_at=BEGIN + 200.0, pool="chat-us")])
    assert _due(BEGIN + 201.0) is None
    record([row(0, arrived_at=BEGIN + 300.0, pool="chat-us")])
    assert _due(BEGIN + 301.0) == {"minutes": MINUTES}
    run = start_calculation(JOB, {"minutes": MINUTES})
    assert _due(BEGIN + 301.0) is None
    at = datetime.fromtimestamp(BEGIN + 301, UTC)
    JobRun.objects.filter(pk=run.pk).update(state=JobState.DONE, started_at=at, finished_at=at)
    assert _due(BEGIN + 500.0) is None
    assert _due(BEGIN + 700.0) == {"minutes": MINUTES}
    record([row(0, arrived_at=BEGIN + 5 * STEP_S + 1, pool="chat-us")])
    assert _due(BEGIN + 5 * STEP_S + 100) == {"days": 30}


@pytest.mark.parametrize("query", ["days=0", "days=x", "reserved=-1", "utilization=1.1", "on_demand=nan"])
def test_invalid_price_is_rejected_at_its_field(viewer: Client, query: str) -> None:
    answer = viewer.get(f"/regions/capacity?{query}")
    assert answer.status_code == 422
    assert "Enter a number above 0" in words(answer.content)
