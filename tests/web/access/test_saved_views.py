"""People name the filters of a page. Shared views show no reader a pool that they may not see."""

from __future__ import annotations

import re

import pytest
from django.contrib.auth.models import User
from django.test import Client

from controlplane.access import saved_views
from controlplane.access.models.saved_view import SavedView
from controlplane.platform.models.audit_event import AuditEvent
from tests.page_text import page_text
from tests.web.role_clients import client_of, make_person, make_pool

pytestmark = pytest.mark.django_db
SAVE = "/views"


def save(client: Client, name: str, query: str, path: str = "/requests", **more: str) -> int:
    return client.post(SAVE, {"name": name, "path": path, "query": query, **more}).status_code


def menu(client: Client, address: str = "/requests") -> list[tuple[str, str]]:
    """Return (address, name) of each view in the page's menu."""
    page = page_text(client.get(address))
    body = page[page.index('id="views-menu"') : page.index("Rename or delete views")]
    rows = re.findall(r'<a class="menu-item" href="([^"]+)"[^>]*>([^<]+)', body.rpartition("<a")[0])
    return [(address, name.strip()) for address, name in rows]


def palette_rows(client: Client, words: str) -> list[str]:
    rows = page_text(client.get("/search", {"q": words}))
    _, _, views = rows.partition('aria-label="View"')
    return re.findall(r'role="option"[^>]*?href="([^"]+)"', views.partition("</div>")[0])


def test_view_is_saved_opened_renamed_and_deleted() -> None:
    client = client_of(make_person("viewer"))
    page = page_text(client.get("/requests?state=late&pool=&before=7&tenant=acme"))
    assert 'name="query" value="state=late&amp;tenant=acme"' in page
    answer = client.post(SAVE, {"name": "Late of Acme", "path": "/requests", "query": "state=late&tenant=acme"})
    assert (answer.status_code, answer["Location"]) == (303, "/requests?state=late&tenant=acme")
    assert client.get(answer["Location"]).status_code == 200
    assert menu(client) == [("/requests?state=late&amp;tenant=acme", "Late of Acme")]
    assert menu(client, "/audit") == []
    assert palette_rows(client, "acme") == ["/requests?state=late&amp;tenant=acme"]
    view = SavedView.objects.get()
    assert client.post(f"/views/{view.pk}", {"name": "Slow"}).status_code == 303
    assert [name for _, name in menu(client)] == ["Slow"]
    assert 'value="Slow"' in page_text(client.get("/access/you/settings"))
    assert client.post(f"/views/{view.pk}", {"do": "delete"}).status_code == 303
    assert menu(client) == []
    assert not AuditEvent.objects.filter(object_kind="saved view").exists()


@pytest.mark.parametrize("path", saved_views.PATHS)
def test_pages_with_filters_have_the_menu(path: str) -> None:
    client = client_of(make_person("viewer"))
    assert menu(client, path) == []
    assert save(client, "Mine", "pool=chat", path) == 303
    assert [name for _, name in menu(client, path)] == ["Mine"]
    assert "views-menu" not in page_text(client.get("/policies"))


def test_saving_under_a_known_name_replaces_the_filters() -> None:
    client = client_of(make_person("viewer"))
    for query in ("state=late", "state=failed"):
        assert save(client, "Mine", query) == 303
    assert menu(client) == [("/requests?state=failed", "Mine")]


@pytest.mark.parametrize(
    ("name", "query", "path"),
    [("", "a=1", "/requests"), ("x" * 81, "a=1", "/requests"), ("x", "", "/requests"), ("x", "a" * 2001, "/requests"),
     ("x", "a=1", "/policies"), ("x", "a=1", "//evil.example"), ("x", "a=\n1", "/requests")],
)  # fmt: skip
def test_invalid_views_are_rejected(name: str, query: str, path: str) -> None:
    assert save(client_of(make_person("viewer")), name, query, path) == 422
    assert not SavedView.objects.exists()


def test_a_person_has_a_limited_number_of_views(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saved_views, "MAX_VIEWS", 2)
    client = client_of(make_person("viewer"))
    assert [save(client, name, "a=1") for name in ("a", "b", "c", "b")] == [303, 303, 422, 303]


def test_private_views_are_seen_and_changed_by_their_owner_alone() -> None:
    owner, admin = client_of(make_person("viewer")), client_of(make_person("admin"))
    save(owner, "Mine", "state=late")
    view = SavedView.objects.get()
    assert menu(admin) == []
    assert palette_rows(admin, "Mine") == []
    assert admin.post(f"/views/{view.pk}", {"name": "Taken"}).status_code == 404
    assert admin.post(f"/views/{view.pk}", {"do": "delete"}).status_code == 404
    assert SavedView.objects.get().name == "Mine"


def test_operators_share_views_and_admins_manage_shared_ones() -> None:
    viewer, operator, admin = (client_of(make_person(role)) for role in ("viewer", "operator", "admin"))
    assert save(viewer, "Ours", "state=late", shared="on") == 403
    assert save(operator, "Ours", "state=late", shared="on") == 303
    view = SavedView.objects.get()
    assert [name for _, name in menu(viewer)] == ["Ours"]
    assert palette_rows(viewer, "ours") == ["/requests?state=late"]
    assert viewer.post(f"/views/{view.pk}", {"name": "Mine"}).status_code == 403
    assert admin.post(f"/views/{view.pk}", {"name": "All", "shared": "on"}).status_code == 303
    assert SavedView.objects.get().owner == User.objects.get(username="operator")
    assert admin.post(f"/views/{view.pk}", {"name": "All"}).status_code == 303
    assert menu(viewer) == []
    events = AuditEvent.objects.filter(object_id=str(view.pk)).order_by("pk")
    assert [event.verb for event in events] == ["saved_view.share", "saved_view.share", "saved_view.unshare"]
    assert [event.actor_name for event in events] == ["operator", "admin", "admin"]
    assert events[1].before["name"] == "Ours"
    assert events[1].after["name"] == "All"


def test_shared_views_show_nothing_of_pools_that_the_reader_does_not_see() -> None:
    chat, code = make_pool("chat"), make_pool("code")
    operator, of_chat = client_of(make_person("operator")), client_of(make_person("pool_operator", chat))
    for name, query in (
        ("Late", "state=late"),
        ("Chat", "pool=chat&engine=e-1"),
        ("Code", f"pool={code.slug}"),
        ("Engine", "engine=e-2"),
        ("Tenant", "tenant=acme"),
    ):
        assert save(operator, name, query, shared="on") == 303
    assert [name for _, name in menu(of_chat)] == ["Chat", "Late"]
    assert len(menu(operator)) == 5
    assert save(of_chat, "Ours", "pool=chat", shared="on") == 303
    assert save(of_chat, "Theirs", "pool=code", shared="on") == 403
    hidden = SavedView.objects.get(name="Code")
    assert of_chat.post(f"/views/{hidden.pk}", {"do": "delete"}).status_code == 404


def test_names_are_escaped() -> None:
    client = client_of(make_person("viewer"))
    save(client, '"><script>alert(1)</script>', 'q="><b>')
    for page in ("/requests", "/access/you/settings", "/search?q=script"):
        assert "<script>alert" not in page_text(client.get(page))
