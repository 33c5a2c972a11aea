"""The Objectives page: who sees and changes targets, and what a day without requests shows."""

from __future__ import annotations

import re
from datetime import timedelta

import msgspec
import pytest
from django.http import HttpResponse
from django.utils import timezone

from controlplane.objectives.attainment import PartAttainment
from controlplane.objectives.objective import Objective
from controlplane.usage.models.usage_rows import UsageDay
from gateway.contracts.outcomes import OutcomeCounts, PoolOutcomes
from tests.web.fake_fleet import FakeFleet
from tests.web.role_clients import client_of, make_person, make_pool

pytestmark = pytest.mark.django_db


def words(answer: HttpResponse) -> str:
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", answer.content.decode()))


def test_an_admin_sets_a_target_and_unknown_figures_are_dashes() -> None:
    pool = make_pool("chat")
    admin, viewer = client_of(make_person("admin")), client_of(make_person("viewer"))
    empty = words(admin.get("/objectives"))
    assert "No objectives yet" in empty
    assert "90.0 % — — — — — —, — tenant , prompt length" in empty
    assert "No publishes yet" in empty
    assert "No requests in 24 h" in empty
    assert "No requests in 30 days" in empty
    UsageDay.objects.create(day=timezone.now().date(), tenant="t", pool="chat", requests=100, late=11)
    page = words(admin.get("/objectives"))
    assert "Below target: chat, with " in page
    assert " of data" in page, "of less than 30 days"
    assert "Error budget left over time, now −10.0" in admin.get("/objectives").content.decode()
    first = timezone.now().date() - timedelta(days=29)
    UsageDay.objects.create(day=first, tenant="t", pool="chat", requests=1)
    assert "Below target in 30 days: chat" in words(admin.get("/objectives"))
    UsageDay.objects.all().delete()
    given = {"slug": "chat", "pool": "chat", "target": "97.5"}
    assert viewer.post("/objectives", given).status_code == 403
    assert "incidents use it at once" in words(admin.post("/objectives", given, follow=True))
    assert Objective.objects.get().target == 97.5
    assert "chat chat 97.5% — — — — — —, —" in words(viewer.get("/objectives"))
    assert client_of(make_person("pool_viewer", pool)).get("/objectives").status_code == 403
    assert "slug,pool,target" in viewer.get("/objectives.csv").content.decode()


def test_slo_classes_have_their_share_since_the_gateways_started(monkeypatch: pytest.MonkeyPatch) -> None:
    make_pool("pool-0")
    viewer = client_of(make_person("viewer"))
    assert "A request names its class" in words(viewer.get("/objectives"))
    sample = FakeFleet(engines=2, pools=1, events=False).sample_at(30.0, 1_700_000_000.0)
    classes = {"chat": OutcomeCounts(90, 10), "": OutcomeCounts(30, 0, 5, 5), "idle": OutcomeCounts(cancelled=3)}
    pool = msgspec.structs.replace(sample.pools[0], pool_id="pool-0", outcomes=PoolOutcomes(classes=classes))

    class Samples:
        latest = msgspec.structs.replace(sample, pools=(pool,))

    monkeypatch.setattr("web.objectives.page.fleet_samples", Samples)
    page = words(viewer.get("/objectives"))
    assert "chat 90.0 % 100 no class 75.0 % 40" in page
    assert "idle" not in page


def test_parts_of_a_pool_lead_to_their_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    make_pool("chat")
    parts = [PartAttainment("acme", None, None, 0.5, 0.75, None, 1234.0)]
    parts.append(PartAttainment("", 1024, 4096, None, 1.0, None, 9.0))
    monkeypatch.setattr("web.objectives.page.attainment_by_part", lambda pool, now: parts if pool == "chat" else [])
    answer = client_of(make_person("viewer")).get("/objectives")
    assert "tenant acme 50.0 % 75.0 % — 1,234" in words(answer)
    assert "prompts from 1,024 tokens, below 4,096 — 100.0 % — 9" in words(answer)
    assert b'href="/requests?pool=chat&amp;tenant=acme"' in answer.content
    assert b'href="/requests?pool=chat&amp;prompt_from=1024&amp;prompt_below=4096"' in answer.content
