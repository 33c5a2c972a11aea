"""The Capacity page: its visibility, its texts, and rejected input."""

from __future__ import annotations

import re
from typing import Any

import msgspec
import pytest
from django.test import Client
from django.utils import timezone

from controlplane.capacity.demand import STEP_S, LoggedDemand, logged_demand
from controlplane.capacity.job import JOB
from controlplane.capacity.saving import FleetSize, Prices, installation_plan
from controlplane.fleet.models.engine import Engine
from controlplane.fleet.models.pool import Pool
from controlplane.platform.jobs.calculation import LEASE, start_calculation
from controlplane.platform.jobs.lease import finish, take_waiting
from controlplane.platform.models.job_run import JobRun, JobState
from tests.controlplane.capacity.some_days import BEGIN, days, pools
from tests.controlplane.request_log.recordings.traffic import record, row
from tests.web.role_clients import ROLES, client_of, make_person
from web.capacity.page import finding, sizes

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
    assert re.search(r"first full quarter of an hour of the log ends at \d\d:\d\d UTC", page_of(viewer))
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
        ({"us": [0.7, 1.4]}, "Short by 1.0 engines at the peak", "needs 2.0 engines that are 70.0 % busy; 1 are"),
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


def test_demand_now_is_the_one_of_automation(viewer: Client) -> None:
    read_log(days(0.1))
    assert "not measured by Automation yet" in page_of(viewer)
    for slug, demand in (("chat-us", 1.25), ("chat-eu", 0.5)):
        pool = Pool.objects.get(slug=slug)
        JobRun.objects.create(job="scaling", shard=pool.pk, plan={"demand": demand}, started_at=timezone.now())
    assert "Demand now 1.8 busy engines, as on Automation" in page_of(viewer)


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


@pytest.mark.parametrize("query", ["days=0", "days=x", "reserved=-1", "utilization=1.1", "on_demand=nan"])
def test_invalid_price_is_rejected_at_its_field(viewer: Client, query: str) -> None:
    answer = viewer.get(f"/regions/capacity?{query}")
    assert answer.status_code == 422
    assert "Enter a number above 0" in words(answer.content)
