"""Pages of shadows: start, results, and permissions."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from django.test import Client, override_settings
from django.utils import timezone

from controlplane.fleet.models.pool import Pool
from controlplane.fleet.topology import change_pool
from controlplane.platform.models.audit_event import AuditEvent
from controlplane.policies.publish import draft
from controlplane.trials.models.shadow import Shadow, ShadowState
from controlplane.trials.shadow.lifecycle import fail_shadow, observe_pools, start_shadow, stop_shadow
from controlplane.trials.shadow.reading import ShadowFigures
from controlplane.trials.shadow.reports import store_reports
from gateway.contracts.shadow_tally import ShadowTally
from tests.controlplane.trials.shadow.test_lifecycle import report, tally
from tests.controlplane.trials.whatif.installation import ACTOR, live_and_draft
from tests.page_text import page_text
from tests.web.role_clients import client_of, make_person, make_pool
from web.shell.say import say
from web.trials.shadow.finding import BETTER, EVEN, WORSE, finding
from web.trials.shadow.pictures import engine_shifts, gain_picture

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def own_state(tmp_path: Path) -> object:
    with override_settings(STATE_DIR=tmp_path):
        yield


@pytest.fixture
def pool() -> Pool:
    pool = make_pool()
    live_and_draft(pool)
    pool.refresh_from_db()
    return pool


@pytest.fixture
def shadow(pool: Pool) -> Shadow:
    return start_shadow(pool, pool.policy.versions.get(number=2), actor=ACTOR)


def show(client: Client, path: str, status: int = 200) -> str:
    answer = client.get(path)
    assert answer.status_code == status
    return page_text(answer)


def test_first_visit_shows_the_next_step(operator: Client) -> None:
    assert "No shadow yet" in show(operator, "/trials/shadows")


def test_shadow_is_started_from_the_form_and_stopped_on_its_page(operator: Client) -> None:
    assert "Start a shadow</a>" in show(operator, "/policies/chat-policy?draft=2")
    assert '<option value="2" selected>v2 draft: second</option>' in show(operator, "/trials/shadows?new&draft=2")
    form = {"pool": "chat", "draft": "2", "minutes": "15", "max_per_s": "20"}
    answer = operator.post("/trials/shadows/start", form)
    started = Shadow.objects.get()
    address = f"/trials/shadows/{started.pk}"
    assert answer["Location"] == address
    assert (started.max_per_s, round((started.until - started.created_at).total_seconds())) == (20, 900)
    page = show(operator, address)
    assert "Waiting for requests" in page
    assert f'data-refresh="{address}?fragment"' in page
    assert "<html" not in show(operator, f"{address}?fragment")
    assert operator.post("/trials/shadows/start", form).status_code == 409
    assert operator.post(f"{address}/stop").status_code == 302
    page = show(operator, address)
    assert "Stopped by operator." in page
    assert "data-refresh=" not in page
    assert operator.post(f"{address}/stop").status_code == 409


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("draft", "77", "No such version"),
        ("draft", "1", "is the live version"),
        ("max_per_s", "many", "Enter a whole number"),
        ("minutes", "0", "Must be from 1"),
        ("pool", "nowhere", "No such pool"),
    ],
)
def test_errors_are_shown_at_their_field(operator: Client, field: str, value: str, words: str) -> None:
    form = {"pool": "chat", "draft": "2", "minutes": "15", "max_per_s": "20"}
    answer = operator.post("/trials/shadows/start", {**form, field: value})
    assert answer.status_code == 422
    assert words in page_text(answer)
    assert not Shadow.objects.exists()


def test_figures_charts_and_examples_are_shown(operator: Client, shadow: Shadow) -> None:
    store_reports([report(shadow, tally=tally(agreed=150, better=40, worse=10))])
    page = show(operator, f"/trials/shadows/{shadow.pk}")
    title = re.search(r"<h1>([^<]+)</h1>", page)
    assert title is not None
    assert title[1] == "Predicted TTFT 60 ms shorter per request".replace(" ms", "\u202fms")
    assert "<b>75.0</b><small>%</small>" in page
    assert page.count('class="shadow-bar') == 17
    assert page.count('class="shadow-live"') == 2
    assert (
        'aria-label="Predicted gain in TTFT where the policies differ: 80.0\u202f% shorter, 20.0\u202f% longer."'
        in page
    )
    assert "200 ms to 500 ms shorter".replace(" ms", "\u202fms") in page
    assert page.count("no record stored") == 24
    assert "<b>20</b><small>µs</small>" in page
    assert " style=" not in page
    assert title[1] in show(operator, "/trials/shadows")


def test_incomparable_parts_are_named(operator: Client, pool: Pool) -> None:
    document = {"placement": {"name": "mooncake"}, "order": {"name": "edf"}, "prefill_window_tokens": 4096}
    started = start_shadow(pool, draft(pool.policy, document, actor=ACTOR), actor=ACTOR)
    page = show(operator, f"/trials/shadows/{started.pk}")
    assert "Also different: queue order and prefill window. A shadow compares single choices" in page


def test_viewers_can_read_but_not_change(shadow: Shadow) -> None:
    viewer = client_of(make_person("viewer"))
    address = f"/trials/shadows/{shadow.pk}"
    assert "Stop shadow" not in show(viewer, address)
    assert viewer.post(f"{address}/stop").status_code == 403
    assert viewer.post("/trials/shadows/start", {"pool": "chat", "draft": "2"}).status_code == 403
    stranger = client_of(make_person("pool_operator", make_pool("other")))
    assert stranger.get(address).status_code == 404


def test_observing_pool_is_compared_and_starts_to_route_after_a_confirmation(pool: Pool) -> None:
    change_pool(pool, {"mode": "observe"}, actor=ACTOR)
    observe_pools()
    observed = Shadow.objects.get()
    address = f"/trials/shadows/{observed.pk}"
    operator, admin = client_of(make_person("operator")), client_of(make_person("admin"))
    assert "Waiting for observations" in show(operator, address)
    store_reports([report(observed, tally=tally(agreed=150, better=40, worse=10))])
    page = show(admin, address)
    assert "Other router sent it to" in page
    assert "Observe-only:" in page
    assert "Let chat route its requests?" in show(admin, f"{address}?ask")
    assert operator.get(f"{address}?ask").status_code == 403
    assert operator.post(f"{address}/route").status_code == 403
    assert admin.post(f"{address}/route", {"why": "it gains"}).status_code == 302
    pool.refresh_from_db()
    assert pool.mode == "route"
    assert AuditEvent.objects.filter(verb="pool.change", why="it gains").exists()
    assert "Let the pool route" not in show(admin, address)


def test_admin_lets_a_pool_observe_by_typing_its_name(pool: Pool) -> None:
    operator, admin = client_of(make_person("operator")), client_of(make_person("admin"))
    settings = "/engines?settings=chat"
    assert "to stop routing it" not in show(operator, settings)
    assert "to stop routing it" not in show(admin, "/trials/shadows?new")
    page = show(admin, settings)
    assert "Type chat to stop routing it" in page
    assert "/v1 and /api/v1/route answer 409 for m." in page.replace(pool.served_model, "m")
    where, form = "/engines/pools/chat/observe", {"typed": "chat", "revision": str(pool.revision)}
    answer = admin.post(where, {**form, "typed": "chta"})
    assert answer.status_code == 422
    assert "Type chat to stop routing it." in page_text(answer)
    assert operator.post(where, form).status_code == 403
    assert admin.post(where, {**form, "revision": "99"}).status_code == 412
    assert admin.post(where, form).status_code == 302
    pool.refresh_from_db()
    assert pool.mode == "observe"
    assert AuditEvent.objects.filter(verb="pool.change").exists()


def words(shadow: Shadow, counted: ShadowTally) -> tuple[str, str]:
    figures = ShadowFigures(counted, ())
    answer = finding(shadow, figures)
    return answer.kind, say("trials/shadow/finding_title.html", finding=answer, figures=figures)


def test_findings_are_as_certain_as_their_figures(shadow: Shadow) -> None:
    assert words(shadow, tally(5, 5, 0)) == ("", "Too few requests yet")
    assert words(shadow, tally(100, 0, 0)) == (EVEN, "Same choices on this traffic")
    assert words(shadow, tally(99, 0, 9)) == (EVEN, "Different engines, the same TTFT")
    assert words(shadow, tally(50, 50, 0))[0] == BETTER
    assert words(shadow, tally(10, 0, 99))[0] == WORSE
    assert words(shadow, ShadowTally(unbound=7)) == ("", "Nothing to compare")
    stop_shadow(shadow, actor=ACTOR)
    assert words(shadow, ShadowTally()) == ("", "No requests")
    assert words(shadow, tally(5, 5, 0))[0] == BETTER
    Shadow.objects.update(state=ShadowState.RUNNING, ended_at=timezone.now())
    fail_shadow(shadow, "It broke.")
    shadow.refresh_from_db()
    assert words(shadow, tally(50, 50, 0)) == ("", "The shadow failed")


def test_charts_without_data_are_omitted() -> None:
    assert gain_picture(ShadowFigures(tally(5, 0, 0), ())) is None
    assert engine_shifts(ShadowFigures(ShadowTally(), ()), {}) == []
    shifts = engine_shifts(ShadowFigures(tally(0, 3, 1), ()), {"e-1": "first"})
    assert [(name, change) for name, _, change in shifts] == [
        ("e-2", "+100.0\u202fpt"),
        ("first", "−100.0\u202fpt"),
    ]
