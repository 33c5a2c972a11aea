"""The Usage pages: what is summed, who sees what, downloads, and changes of budgets and prices."""

from __future__ import annotations

import json
import re
from datetime import date, timedelta

import pytest
from django.http import HttpResponse
from django.test import Client
from django.utils import timezone

from controlplane.access.api_keys import create_api_key
from controlplane.fleet.engine_registration import register_engine
from controlplane.fleet.models.pool import Pool
from controlplane.fleet.topology import create_tenant
from controlplane.platform.actor import program
from controlplane.platform.models.audit_event import AuditEvent
from controlplane.platform.models.tenant import Tenant
from controlplane.usage.budgets import create_budget
from controlplane.usage.job import count_engines
from controlplane.usage.models.budget import Budget, BudgetSpending, ModelPrice
from controlplane.usage.models.usage_rows import EngineDay, UsageDay
from gateway.usage.usage_messages import window_start
from tests.web.role_clients import ROLES, client_of, make_person

pytestmark = pytest.mark.django_db
ALL_POOLS = ("viewer", "operator", "admin", "superuser")
TODAY = timezone.now().date()
ACTOR = program("test")


@pytest.fixture
def admin(pool: Pool) -> Client:
    return client_of(make_person("admin"))


@pytest.fixture
def tenant(db: None) -> Tenant:
    return create_tenant("acme", "Acme", actor=ACTOR)


def words(answer: HttpResponse) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", answer.content.decode()))


def used(pool: str, day: date = TODAY, **fields: object) -> None:
    known = {"tenant": "acme", "key_id": "key-1", "model": "m", "requests": 10, "prompt_tokens": 900}
    UsageDay.objects.create(
        day=day, pool=pool, **{**known, "cached_tokens": 300, "output_tokens": 100, "charge": 25 * 10**8, **fields}
    )


def test_an_empty_ledger_states_what_to_do(admin: Client) -> None:
    page = words(admin.get("/usage"))
    assert "No usage yet" in page
    assert "Create an API key" in page


def test_sums_filters_and_groups_agree(admin: Client, pool: Pool) -> None:
    used(pool.slug, failed=2, rejected=1, late=3)
    used(pool.slug, TODAY - timedelta(days=3), tenant="other", key_id="key-2")
    used("", TODAY - timedelta(days=40), model="external")
    page = words(admin.get("/usage"))
    assert "20 requests, 2.0k tokens" in page
    assert re.search(r"List price \(\$\) 5\.00", page)
    assert "40 d" not in page
    assert "10 requests, 1.0k tokens" in words(admin.get("/usage?tenant=acme&group=day"))
    assert "30 requests" in words(admin.get("/usage?days=90&group=model"))
    assert "10 requests" in words(admin.get(f"/usage?month={TODAY:%Y-%m}&tenant=acme&group=key"))
    assert "No usage matches" in words(admin.get("/usage?tenant=nobody"))
    assert admin.get("/usage?month=never&days=x&group=y").status_code == 200


def test_downloads_hold_each_day_key_and_pool(admin: Client, pool: Pool) -> None:
    used(pool.slug)
    answer = admin.get(f"/usage.csv?month={TODAY:%Y-%m}")
    header, line = answer.content.decode().splitlines()
    row = dict(zip(header.split(","), line.split(","), strict=True))
    assert (row["day"], row["key"], row["prompt_tokens"], row["dollars"]) == (str(TODAY), "key-1", "900", "2.500000000")
    assert "attachment" in answer.headers["Content-Disposition"]
    (row,) = json.loads(admin.get("/usage.json").content)["rows"]
    assert (row["pool"], row["output_tokens"]) == (pool.slug, 100)


@pytest.mark.parametrize("role", ROLES)
def test_people_of_one_pool_see_its_usage_and_no_budgets(pool: Pool, tenant: Tenant, role: str) -> None:
    used(pool.slug)
    used("elsewhere", tenant="unseen-tenant", model="unseen-model")
    create_budget(slug="monthly", tenant=tenant, amount=10.0, actor=ACTOR)
    client = client_of(make_person(role, pool))
    everywhere = role in ALL_POOLS
    for address in ("/usage", "/usage?group=model", "/usage.csv", "/usage.json", "/api/v1/usage"):
        answer = client.get(address)
        assert answer.status_code in (200, 403)
        assert (b"unseen" in answer.content) == (everywhere and answer.status_code == 200), address
    assert (b"monthly" in client.get("/usage").content) == everywhere
    assert client.get("/usage/budgets").status_code == (200 if everywhere else 403)
    is_admin = role in ("admin", "superuser")
    form = {"slug": "new", "tenant": "acme", "amount": "5", "unit": "tokens", "window": "day", "mode": "hard"}
    assert client.post("/usage/budgets", form).status_code == (303 if is_admin else 403)
    assert Budget.objects.filter(slug="new").exists() == is_admin


def test_a_budget_shows_its_use_and_overshoot(admin: Client, tenant: Tenant) -> None:
    budget = create_budget(slug="daily", tenant=tenant, amount=1000.0, window="day", mode="hard", actor=ACTOR)
    start = window_start("day", int(timezone.now().timestamp() * 1000))
    window = {"spent": 1100, "by": {}, "held": {}, "rejected": 4, "would_reject": 0}
    BudgetSpending.objects.create(budget=budget, windows={str(start): window})
    page = words(admin.get("/usage/budgets?object=daily"))
    assert "110" in page
    assert "100 tokens over by requests in flight" in page
    (shown,) = admin.get("/api/v1/budgets").json()["results"]
    assert (shown["use"]["spent"], shown["use"]["overshoot"], shown["use"]["rejected"]) == (1100, 100, 4)


def test_a_budget_is_added_changed_and_deleted(admin: Client, tenant: Tenant) -> None:
    key, _ = create_api_key(tenant, actor=ACTOR, name="batch")
    assert key.key_id in admin.get("/usage/budgets?new&tenant=acme").content.decode()
    form = {
        "slug": "batch", "tenant": "acme", "key_id": key.key_id, "amount": "2.5", "unit": "dollars", "window": "month",
        "mode": "shadow",
    }  # fmt: skip
    assert admin.post("/usage/budgets", {**form, "key_id": "key-of-another"}).status_code == 422
    assert admin.post("/usage/budgets", {**form, "amount": "0"}).status_code == 422
    assert admin.post("/usage/budgets", form).headers["Location"] == "/usage/budgets?object=batch&said=created"
    assert Budget.objects.get().units == 2_500_000_000
    change = {"object": "batch", "revision": "1", "amount": "3", "mode": "hard"}
    assert admin.post("/usage/budgets", change).status_code == 303
    assert admin.post("/usage/budgets", change).status_code == 412
    assert "Delete budget batch?" in words(admin.get("/usage/budgets?object=batch&delete"))
    assert admin.post("/usage/budgets", {"object": "batch", "do": "delete"}).status_code == 303
    verbs = AuditEvent.objects.filter(object_kind="budget").values_list("verb", flat=True)
    assert sorted(verbs) == ["budget.change", "budget.create", "budget.delete"]


def test_a_price_is_added(admin: Client, pool: Pool) -> None:
    assert pool.served_model in admin.get("/usage/prices?new").content.decode()
    form = {"slug": "m", "model": pool.served_model, "prompt": "0.5", "cached": "", "output": "2"}
    assert admin.post("/usage/prices", form).status_code == 303
    price = ModelPrice.objects.get()
    assert (price.prompt, price.cached, price.output) == (0.5, None, 2.0)
    assert "as prompt" in words(admin.get("/usage/prices"))


def test_engine_hours_give_the_cost_of_a_million_tokens(admin: Client, pool: Pool) -> None:
    for number, cost in enumerate((2.0, 4.0)):
        register_engine(pool, f"e-{number}", f"http://10.0.0.{number}:80", actor=ACTOR, cost_per_hour=cost)
    # Today is the page's last day, so all times are before now.
    now = timezone.now() - timedelta(minutes=99)
    count_engines(now)
    count_engines(now + timedelta(minutes=5))
    # A longer pause of Headway adds ten minutes.
    count_engines(now + timedelta(minutes=95))
    rows = EngineDay.objects.all()
    assert sum(row.engine_s for row in rows) == pytest.approx(2 * 900)
    assert sum(row.cost for row in rows) == pytest.approx(6.0 / 4)
    used(pool.slug, model=pool.served_model, prompt_tokens=400_000, output_tokens=100_000)
    page = words(admin.get("/usage"))
    assert "$3.00 per million tokens" in page
    register_engine(pool, "unpriced", "http://10.0.0.9:80", actor=ACTOR)
    count_engines(now + timedelta(minutes=99))
    assert "without price" in words(admin.get("/usage"))


def test_tenant_and_key_pages_show_usage_and_budgets(admin: Client, pool: Pool, tenant: Tenant) -> None:
    key, _ = create_api_key(tenant, actor=ACTOR, name="batch")
    used(pool.slug, key_id=key.key_id)
    create_budget(slug="of-tenant", tenant=tenant, amount=500.0, actor=ACTOR)
    create_budget(slug="of-key", tenant=tenant, key_id=key.key_id, amount=500.0, actor=ACTOR)
    for address in ("/access/tenants?tenant=acme", f"/access/keys?key={key.key_id}"):
        page = words(admin.get(address))
        assert "10 requests, 1.0k tokens" in page, address
        assert "of-tenant" in page
        assert "of-key" in page


def test_answers_that_engines_broke_off_are_failed_and_a_gateways_end_is_named(admin: Client, pool: Pool) -> None:
    used(pool.slug, failed=2)
    page = words(admin.get("/usage"))
    assert "10 requests, 1.0k tokens; 2 failed" in page
    assert "Failed: an engine broke off its answer or gave none" in page
    assert "Cut off" not in page
    used(pool.slug, tenant="other", interrupted=3)
    page = words(admin.get("/usage"))
    assert "3 cut off by a gateway’s end" in page
    assert "Cut off: a gateway process ended during the answer" in page


def test_a_list_price_that_is_not_set_is_unknown(admin: Client, pool: Pool) -> None:
    used(pool.slug, charge=0)
    assert "List price ($) — no price is set under Prices" in words(admin.get("/usage"))
    ModelPrice.objects.create(slug="m", model="m", prompt=0.0, output=0.0)
    assert "List price ($) 0.00 charged to tenants" in words(admin.get("/usage"))
