"""The Savings page: totals and ranges, days that are unknown, who sees and starts what, and the download."""

from __future__ import annotations

import csv
import io
import re
from datetime import UTC, datetime, timedelta

import pytest
from django.http import HttpResponse
from django.test import Client
from django.utils import timezone

from controlplane.fleet.models.pool import Pool
from controlplane.platform.models.job_run import JobRun
from controlplane.savings.models.savings_rows import SavingsDay
from tests.controlplane.savings.some_days import DAY, held, keep, price, result
from tests.web.role_clients import ROLES, client_of, make_person, make_pool

pytestmark = pytest.mark.django_db
NEXT = DAY + timedelta(days=1)


@pytest.fixture(autouse=True)
def today(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timezone, "now", lambda: datetime(2026, 11, 13, 12, tzinfo=UTC))


@pytest.fixture
def admin(pool: Pool) -> Client:
    return client_of(make_person("admin"))


def words(answer: HttpResponse) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", answer.content.decode()))


def test_an_empty_ledger_states_when_it_fills(admin: Client) -> None:
    page = words(admin.get("/savings"))
    assert "No savings proved yet; the next proof comes on 14 Nov, 00:20 UTC" in page
    assert "0 requests on 13 Nov so far. A proof needs 60 in at least 4 of 8 equal parts" in page
    assert 'value="2026-11-13"' in admin.get("/savings").content.decode()
    assert "No day of this month was replayed" in words(admin.get("/savings?month=2026-10"))


def test_days_before_the_first_record_are_not_listed(admin: Client, pool: Pool) -> None:
    SavingsDay.objects.create(day=DAY, pool=pool.slug, state="not_recorded", computed_at=timezone.now())
    assert "Not recorded" not in words(admin.get("/savings"))
    SavingsDay.objects.create(
        day=DAY - timedelta(days=1), pool=pool.slug, state="too_few", requests=9, computed_at=timezone.now()
    )
    page = words(admin.get("/savings"))
    assert "Not recorded" in page
    assert "Too little traffic" in page


def test_totals_ranges_and_the_holdback_are_shown(admin: Client, pool: Pool) -> None:
    price(pool.slug, 2.0)
    held(pool.slug, late=100)
    keep(pool.slug)
    held(pool.slug, late=400, day=NEXT)
    keep(pool.slug, NEXT, result(engines=5.0))
    page = words(admin.get("/savings"))
    assert "36.0 engine hours saved against Round robin" in page
    assert re.search(r"Cost saved \(\$\) 48\.00 48\.00 to 48\.00; 1 day without price", page)
    assert re.search(r"Late answers avoided 80 ", page)
    assert "1 of 2 days whose range covers" in page
    assert "least_loaded 1,000 requests 8.0 pt" in page
    # One day has ended without a row.
    assert page.count("Not replayed") == 1
    assert "2 of 30 days are replayed" in admin.get("/savings").content.decode()


def test_an_unknown_day_is_never_0(admin: Client, pool: Pool) -> None:
    keep(pool.slug)
    page = admin.get("/savings").content.decode()
    assert page.count("×</text>") == 2
    row = next(part for part in page.split("<tr") if "Not replayed" in part)
    assert ">0<" not in row
    lines = list(csv.DictReader(io.StringIO(admin.get("/savings.csv").content.decode())))
    unknown = [line for line in lines if line["state"] == "not_replayed"]
    assert [line["day"] for line in unknown] == ["2026-11-11", "2026-11-12"]
    assert {line[name] for line in unknown for name in ("engine_h", "late", "dollars")} == {""}


def test_the_download_has_each_tenant_and_its_range(admin: Client, pool: Pool) -> None:
    price(pool.slug, 2.0)
    keep(pool.slug)
    lines = list(csv.DictReader(io.StringIO(admin.get("/savings.csv?month=2026-11").content.decode())))
    by_tenant = {line["tenant"]: line for line in lines if line["state"] == "replayed"}
    assert set(by_tenant) == {"", "acme", "beta"}
    assert (by_tenant["acme"]["engine_h"], by_tenant["acme"]["dollars"]) == ("18.000000", "36.000000")
    assert admin.get("/savings.csv?month=never").status_code == 200
    assert admin.get("/savings.csv?month=2026-10").content.decode().count("\n") == 1


def test_a_tenant_has_its_own_part(admin: Client, pool: Pool) -> None:
    keep(pool.slug)
    assert "By tenant" in words(admin.get("/savings"))
    page = words(admin.get("/savings?tenant=acme"))
    assert "18.0 engine hours saved" in page
    assert "Only tenant acme" in page
    assert "By tenant" not in page


@pytest.mark.parametrize("role", ROLES)
def test_people_see_their_pools_and_operators_replay_them(pool: Pool, role: str) -> None:
    other = make_pool("second")
    keep(pool.slug)
    keep(other.slug)
    client = client_of(make_person(role, pool))
    page = client.get("/savings")
    if role == "nobody":
        assert page.status_code == 403
        return
    assert ("second" in words(page)) == (not role.startswith("pool_"))
    assert ("Replay a day now" in words(page)) == (role not in ("viewer", "pool_viewer"))
    answer = client.post("/savings", {"pool": pool.slug, "day": "2026-11-12"})
    assert answer.status_code == (403 if role in ("viewer", "pool_viewer") else 303)
    assert JobRun.objects.filter(job="savings").count() == (answer.status_code == 303)
    hidden = client.post("/savings", {"pool": other.slug, "day": "2026-11-12"})
    assert hidden.status_code == (404 if role.startswith("pool_") else 403 if role == "viewer" else 303)


def test_a_replay_that_cannot_start_says_why(admin: Client, pool: Pool) -> None:
    assert "Write the day" in words(admin.post("/savings", {"pool": pool.slug, "day": "x"}))
    answer = admin.post("/savings", {"pool": pool.slug, "day": "2027-01-01"})
    assert (answer.status_code, "Has not begun yet" in words(answer)) == (422, True)
    admin.post("/savings", {"pool": pool.slug, "day": "2026-11-12"})
    assert f"Replaying 2026-11-12 of pool {pool.slug}" in words(admin.get("/savings"))
    assert admin.post("/savings", {"pool": pool.slug, "day": "2026-11-12"}).status_code == 409


def test_a_replay_by_the_api_is_a_run(admin: Client, pool: Pool) -> None:
    keep(pool.slug)
    month = admin.get("/api/v1/savings?month=2026-11").json()
    assert [item["state"] for item in month["days"]] == ["replayed", "not_replayed", "not_replayed"]
    assert (month["results"][0]["engine_h"]["mid"], month["results"][0]["dollars"]) == (24, None)
    assert admin.get("/api/v1/savings").status_code == 400
    body = {"pool": pool.slug, "day": "2026-11-12", "why": "end of month"}
    answer = admin.post("/api/v1/savings", body, content_type="application/json")
    assert (answer.status_code, answer.json()) == (201, {"job": JobRun.objects.get().pk})
    assert admin.post("/api/v1/savings", body, content_type="application/json").status_code == 409
    assert admin.post("/api/v1/savings", {**body, "pool": "none"}, content_type="application/json").status_code == 400
