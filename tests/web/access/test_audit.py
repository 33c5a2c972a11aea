"""The Audit page lists every change to the people who may see it."""

from __future__ import annotations

import json
import re
from datetime import timedelta

import pytest
from django.test import Client
from django.utils import timezone
from pytest_django import DjangoAssertNumQueries

from controlplane.access.audit_search import EXPORT_LIMIT
from controlplane.platform.models.audit_event import AuditEvent
from tests.page_text import page_text
from tests.web.role_clients import client_of, make_person, make_pool
from web.access.audit import PAGE_ROWS

pytestmark = pytest.mark.django_db


def event(verb: str = "engine.drain", **fields: object) -> AuditEvent:
    known = {
        "at": timezone.now(),
        "actor_name": "op",
        "via": "console",
        "object_kind": "engine",
        "object_id": "e-17",
        "pool_slug": "chat",
    }
    return AuditEvent.objects.create(verb=verb, **{**known, **fields})


def many(count: int) -> None:
    now = timezone.now()
    AuditEvent.objects.bulk_create(
        AuditEvent(
            at=now - timedelta(seconds=number),
            actor_name="op",
            via="api",
            verb="engine.drain",
            object_kind="engine",
            object_id=f"e-{number:05}",
            before={"state": "ready"},
            after={"state": "draining"},
        )
        for number in range(count)
    )


@pytest.fixture
def viewer(db: None) -> Client:
    return client_of(make_person("viewer"))


def rows(page: str) -> list[str]:
    return re.findall(r'id="row-(\d+)"', page)


def show(client: Client, query: str = "") -> str:
    answer = client.get(f"/audit{query}")
    assert answer.status_code == 200
    return page_text(answer)


@pytest.mark.parametrize(
    ("query", "shown"),
    [
        ("", 4),
        ("person=op", 3),
        ("person=o", 0),
        ("verb=engine", 3),
        ("verb=engine.drain", 2),
        ("verb=eng", 0),
        ("object=e-17", 2),
        ("object=engine:e-17", 2),
        ("object=policy:", 1),
        ("object=policy:e-17", 0),
        ("pool=chat", 3),
        ("request=r-1", 1),
        ("since=2030-01-01", 0),
        ("until=2030-01-01T10:00", 4),
        ("until=2001-01-01T10:00Z", 0),
        ("person=op&verb=engine.ready&pool=chat", 1),
    ],
)
def test_each_filter_selects_its_events(viewer: Client, query: str, shown: int) -> None:
    event()
    event(object_id="e-18", request_id="r-1")
    event("engine.ready")
    event("policy.publish", actor_name="other", object_kind="policy", object_id="p", pool_slug="")
    page = show(viewer, f"?{query}")
    assert len(rows(page)) == shown
    download = json.loads(viewer.get(f"/audit/events.json?{query}").content)
    assert len(download["events"]) == shown


def test_people_and_key_events_are_the_default_and_a_loss_has_the_time_at_which_it_happened(viewer: Client) -> None:
    now = timezone.now()
    event("engine.drain")
    event("cost.learn", via="program", actor_name="learned costs", object_kind="pool", object_id="chat")
    lost = now - timedelta(seconds=7)
    event("engine.lost", via="program", actor_name="fleet history", after={"at": lost.timestamp()})
    page = show(viewer)
    assert len(rows(page)) == 2
    assert f">{lost:%H:%M:%S}</time>" in page
    assert len(rows(show(viewer, "?by=people"))) == 1
    assert len(rows(show(viewer, "?by=all"))) == 3


@pytest.mark.parametrize("wanted", ["e-31", "engine:e-31", "e-13", "0199-made-up", "engine:0199-made-up"])
def test_engine_is_shown_and_searchable_under_its_earlier_names(viewer: Client, wanted: str) -> None:
    made_up = {"object_id": "0199-made-up"}
    event("engine.register", after={"name": "e-13"}, **made_up)
    event("engine.change", before={"name": "e-13"}, after={"name": "e-31"}, **made_up)
    event("engine.drain", **made_up)
    event("pool.create", object_kind="pool", object_id="p", after={"name": wanted})
    page = show(viewer, f"?object={wanted}")
    assert len(rows(page)) == 3
    assert '<span class="faint">engine</span> e-31</td>' in page


def test_changes_by_programs_are_listed_on_request_and_repetitions_share_a_row(viewer: Client) -> None:
    event("pool.change", object_kind="pool", object_id="chat")
    for name in ("e-17", "e-18"):
        event("engine.quarantine", via="program", actor_name="engine health", object_id=name)
    page = show(viewer, "?by=people")
    assert len(rows(page)) == 1
    assert 'changed <span class="faint">pool</span> chat' in page
    page = show(viewer, "?by=programs")
    assert len(rows(page)) == 1
    assert 'quarantined <span class="faint">engine</span> e-17, e-18' in page
    assert "2×" in page
    assert len(rows(show(viewer, "?by=all"))) == 2
    assert len(json.loads(viewer.get("/audit/events.json?by=programs").content)["events"]) == 2


def test_active_filters_can_be_removed_one_by_one(viewer: Client) -> None:
    event()
    page = show(viewer, "?person=op&verb=engine")
    assert 'href="/audit?verb=engine" aria-label="Remove the filter person"' in page
    assert 'href="/audit?person=op" aria-label="Remove the filter verb"' in page
    assert "No events match" in show(viewer, "?person=nobody&verb=engine")


@pytest.mark.parametrize("time", ["yesterday", "2026-13-40", "2026-11-20T99:00"])
def test_invalid_time_is_reported(viewer: Client, time: str) -> None:
    for address in ("/audit", "/audit/events.json"):
        answer = viewer.get(address, {"since": time})
        assert answer.status_code == 400
        assert "since is not a time; write 2026-11-20T03:13" in page_text(answer)


def test_pages_have_no_gap_and_no_repetition(viewer: Client) -> None:
    many(PAGE_ROWS * 2 + 7)
    seen: list[str] = []
    page = show(viewer)
    while True:
        seen += rows(page)
        older = re.search(r'href="(/audit\?[^"]*before=\d+)"', page)
        if older is None:
            break
        page = show(viewer, older[1].removeprefix("/audit").replace("&amp;", "&"))
    assert len(seen) == len(set(seen)) == PAGE_ROWS * 2 + 7
    newer = re.search(r'href="(/audit\?[^"]*after=\d+)"', page)
    page = show(viewer, newer[1].removeprefix("/audit").replace("&amp;", "&"))
    assert rows(page) == seen[PAGE_ROWS : 2 * PAGE_ROWS]


def test_event_shows_its_differences(viewer: Client) -> None:
    changed = event(
        before={"state": "ready", "speed": 1.0, "url": "http://a"},
        after={"state": "draining", "speed": 1.0, "url": "http://a"},
        why="kernel update",
        request_id="0199f3c2",
    )
    page = show(viewer, f"?event={changed.pk}")
    for kind, state in (("removed", "ready"), ("added", "draining")):
        name = '<span class="name">"state"</span>'
        assert f"{kind}: </span>  {name}: &quot;<mark>{state}</mark>&quot;," in page
    assert "kernel update" in page
    assert 'href="/audit?request=0199f3c2"' in page
    assert f'id="row-{changed.pk}"' in page


@pytest.mark.parametrize("text", ["x", "-1", "99999999999999999999", "٣"])
def test_unknown_event_opens_no_drawer(viewer: Client, text: str) -> None:
    assert "drawer-title" not in show(viewer, f"?event={text}&before={text}&after={text}")


def test_viewers_of_a_pool_see_only_its_events() -> None:
    pool = make_pool()
    make_pool("other")
    own, foreign = event(), event(pool_slug="other", object_id="e-99")
    person_event = event("person.create", object_kind="person", object_id="boss", pool_slug="")
    client = client_of(make_person("pool_viewer", pool))
    page = show(client)
    assert rows(page) == [str(own.pk)]
    for hidden in (foreign, person_event):
        assert "drawer-title" not in show(client, f"?event={hidden.pk}")
        assert hidden.object_id not in page_text(client.get("/audit/events.json"))
    assert 'value="other"' not in page
    assert rows(show(client, "?pool=other")) == []


def test_without_a_role_no_event_is_shown() -> None:
    event()
    assert client_of(make_person("nobody")).get("/audit").status_code == 403


def test_download_is_limited_and_reports_its_limit(viewer: Client) -> None:
    many(EXPORT_LIMIT + 3)
    answer = viewer.get("/audit/events.json?person=op")
    document = json.loads(answer.content)
    assert answer["Content-Disposition"] == 'attachment; filename="headway-audit.json"'
    assert len(document["events"]) == EXPORT_LIMIT
    assert document["truncated"] is True
    assert document["filter"] == {"person": "op"}
    assert document["events"][0]["object"] == {"kind": "engine", "id": "e-00000"}
    assert document["events"][0]["before"] == {"state": "ready"}


def test_page_accepts_only_reads(viewer: Client) -> None:
    change = event()
    for address in ("/audit", "/audit/events.json"):
        assert viewer.post(address).status_code == 405
        assert viewer.delete(address).status_code == 405
    assert AuditEvent.objects.get() == change


def test_thousand_events_take_as_many_queries_as_one(
    viewer: Client, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    many(1000)
    newest = AuditEvent.objects.first()
    viewer.get("/audit")
    with django_assert_num_queries(8):
        viewer.get("/audit")
    with django_assert_num_queries(10):
        viewer.get(f"/audit?event={newest.pk}&before={newest.pk}&verb=engine&object=engine:")
    with django_assert_num_queries(4):
        viewer.get("/audit/events.json")
