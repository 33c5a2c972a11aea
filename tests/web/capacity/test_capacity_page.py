"""The Capacity page: its visibility, its texts, and rejected input."""

from __future__ import annotations

import re
import time

import pytest
from django.test import Client

from controlplane.fleet.models.pool import Pool
from tests.controlplane.capacity.some_days import days, pools
from tests.web.role_clients import ROLES, client_of, make_person

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


def test_empty_page_states_what_is_missing(viewer: Client) -> None:
    assert "No demand recorded" in words(viewer.get("/regions/capacity").content)


def test_page_shows_the_saving_and_its_uncertainty(viewer: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    end = days(0.3)
    monkeypatch.setattr(time, "time", lambda: end)
    page = words(viewer.get("/regions/capacity?reserved=2&on_demand=5").content)
    assert re.search(
        r"Peak \d+\.\d engines, \d+ present: (short by|[\d.]+ spare)[\d. ]+ ?on \d\d \w+ at \d\d:\d\d UTC", page
    )
    assert re.search(r"Sharing regions saves \d+\.\d\s% of the engines", page)
    assert "with 90 % confidence, resampled from 3 windows of two hours" in page
    assert "less than a day" in page
    assert re.search(r"Cheapest mix [\d.]+ reserved, the rest on demand [\d.]+", page)


@pytest.mark.parametrize("query", ["days=0", "days=x", "reserved=-1", "utilization=1.1", "on_demand=nan"])
def test_invalid_price_is_rejected_at_its_field(viewer: Client, query: str) -> None:
    answer = viewer.get(f"/regions/capacity?{query}")
    assert answer.status_code == 422
    assert "Enter a number above 0" in words(answer.content)
