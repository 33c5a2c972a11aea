"""The command palette, help, renamed paths, and versions of static files."""

from __future__ import annotations

import html
import json
import re
import shlex

import pytest
from django.contrib.auth.models import User
from django.test import Client

from controlplane.fleet.models.engine import Engine
from controlplane.fleet.models.pool import Pool
from controlplane.platform.models.tenant import Tenant
from tests.web.role_clients import client_of, make_person, make_pool
from web.shell.frame import ITEMS
from web.shell.help import api_calls
from web.urls import urlpatterns

pytestmark = pytest.mark.django_db
DECISION = "0198b7c4-5b5e-7000-8000-000000000001"


def rows(client: Client, words: str) -> list[tuple[str, str]]:
    """Return (kind, name) of the rows for the words, in order."""
    page = client.get("/search", {"q": words}).content.decode()
    groups = re.findall(r'role="group" aria-label="(.*?)">(.*?)</div>', page, re.DOTALL)
    return [(kind, name) for kind, group in groups for name in re.findall(r"<b>(.*?)</b>", group)]


@pytest.fixture
def fleet() -> None:
    for slug in ("chat", "code"):
        Engine.objects.create(
            engine_id=f"{slug}-1", name=f"{slug}-1", pool=make_pool(slug), url=f"http://10.0.0.1/{slug}"
        )
    Tenant.objects.create(slug="chatty", name="Chatty Inc")


@pytest.mark.usefixtures("fleet")
def test_admins_find_objects_of_every_kind() -> None:
    kinds = {kind for kind, _ in rows(client_of(make_person("admin")), "chat")}
    assert {"Engine", "Pool", "Requests", "Policy", "Tenant"} <= kinds


@pytest.mark.usefixtures("fleet")
def test_people_of_a_pool_find_nothing_of_another() -> None:
    client = client_of(make_person("pool_operator", make_pool("chat")))
    assert ("Engine", "chat-1") in rows(client, "chat")
    assert "Tenant" not in {kind for kind, _ in rows(client, "chat")}
    assert rows(client, "code") == []


def test_pages_actions_and_request_ids_are_found() -> None:
    admin, viewer = client_of(make_person("admin")), client_of(make_person("viewer"))
    assert ("Page", "Sovereignty") in rows(admin, "sover")
    assert ("Action", "Create a new API key") in rows(admin, "api key")
    assert ("Action", "Create a new API key") not in rows(viewer, "api key")
    assert rows(viewer, DECISION.upper())[0] == ("Request", DECISION)
    assert rows(viewer, "")[0] == ("Page", "Fleet")


@pytest.mark.parametrize(
    ("words", "page"),
    [
        ("policy", "Policies"),
        ("budgets", "Usage"),
        ("price", "Usage"),
        ("settings", "Access"),
        ("theme", "Access"),
        ("pools", "Engines"),
        ("slack", "Notifications"),
        ("slo", "Objectives"),
    ],
)
def test_pages_are_found_by_other_words_for_them(words: str, page: str) -> None:
    assert ("Page", page) in rows(client_of(make_person("admin")), words)


def test_exact_matches_come_before_prefixes_and_these_before_others_each_with_their_kind() -> None:
    for number in range(8):
        Tenant.objects.create(slug=f"t{number}", name=f"a chat {number}")
    for name in ("hatchat", "big chat", "chat-2", "chat"):
        Tenant.objects.create(slug=f"z-{name.replace(' ', '-')}", name=name)
    kinds = rows(client_of(make_person("admin")), "chat")
    tenants = [name for kind, name in kinds if kind == "Tenant"]
    assert (tenants[:2], len(tenants)) == (["chat", "chat-2"], 6)
    assert kinds[0] == ("Tenant", "chat")
    assert rows(client_of(User.objects.get(username="admin")), "hat")[0] == ("Tenant", "hatchat")
    # The page has the only exact match.
    assert rows(client_of(User.objects.get(username="admin")), "usage")[0] == ("Page", "Usage")


@pytest.mark.usefixtures("fleet")
def test_verbs_are_found_with_their_object_by_those_who_may_use_them() -> None:
    operator = client_of(make_person("operator"))
    assert rows(operator, "quar chat") == [("Action", "Quarantine chat-1")]
    assert ("Action", "Drain code-1") in rows(operator, "drain")
    assert {"Drain chat-1", "Quarantine chat-1"} < {name for kind, name in rows(operator, "chat-1") if kind == "Action"}
    page = operator.get("/search", {"q": "drain chat-1"}).content.decode()
    assert 'href="/engines?do=drain&amp;engine=chat-1"' in page
    assert rows(client_of(make_person("viewer")), "drain chat-1") == []
    only = client_of(make_person("pool_operator", Pool.objects.get(slug="chat")))
    assert rows(only, "drain code-1") == []


@pytest.mark.usefixtures("fleet")
@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("polcies", ("Page", "Policies")),
        ("incidnet", ("Page", "Incidents")),
        ("enginse", ("Page", "Engines")),
        ("drian chat-1", ("Action", "Drain chat-1")),
        ("chta", ("Pool", "chat")),
        ("chatyt", ("Tenant", "Chatty Inc")),
        ("quarantime code-1", ("Action", "Quarantine code-1")),
    ],
)
def test_one_typing_error_per_word_is_forgiven(typed: str, meant: tuple[str, str]) -> None:
    assert meant in rows(client_of(make_person("admin")), typed)


@pytest.mark.usefixtures("fleet")
def test_a_typing_error_shows_nothing_of_another_pool() -> None:
    only = client_of(make_person("pool_operator", make_pool("chat")))
    assert ("Pool", "chat") in rows(only, "chta")
    assert rows(only, "cdoe") == []


def test_keys_of_pages_are_shown_and_no_match_says_what_can_be_typed() -> None:
    client = client_of(make_person("viewer"))
    assert re.search(r"<b>Fleet</b><i><kbd>G</kbd> <kbd>F</kbd>", client.get("/search").content.decode())
    assert "“drain e-03”" in client.get("/search", {"q": "zzz"}).content.decode()


@pytest.mark.parametrize("words", ["<b>", "%", "\x00", "a" * 500, "_", "'"])
def test_unusual_words_find_nothing_and_are_escaped(words: str) -> None:
    answer = client_of(make_person("admin")).get("/search", {"q": words})
    assert answer.status_code == 200
    assert "“<b>" not in answer.content.decode()


def test_former_paths_lead_to_their_pages() -> None:
    client = client_of(make_person("admin"))
    for old, new in (
        ("/decisions?late=1", "/requests?late=1"),
        (f"/decisions/{DECISION}", f"/requests/{DECISION}"),
        ("/topology?engine=e", "/engines?engine=e"),
        ("/cache-locality/chat", "/cache/pools/chat"),
        ("/kv", "/cache/store"),
        ("/capacity", "/regions/capacity"),
    ):
        answer = client.get(old)
        assert (answer.status_code, answer["Location"]) == (302, new)


def test_every_page_has_an_explanation_and_a_key_of_its_own() -> None:
    page = client_of(make_person("viewer")).get("/help").content.decode()
    for item in ITEMS:
        for anchor in [key for key, _, _ in item.tabs] or [item.name.lower()]:
            assert f'id="about-{anchor}"' in page, anchor
    assert len({item.key for item in ITEMS}) == len(ITEMS)


def test_api_reference_and_summary_name_every_call() -> None:
    page = client_of(make_person("viewer")).get("/help/api").content.decode()
    summary = Client().get("/llms.txt").content.decode()
    for call in ("/api/v1/route", "/api/v1/engines", "/v1/chat/completions"):
        assert call in page
        assert call in summary


def test_api_reference_has_a_command_for_each_call() -> None:
    page = html.unescape(client_of(make_person("viewer")).get("/help/api").content.decode())
    commands = [block.replace(" \\\n ", "") for block in re.findall(r"<code>(curl .*?)</code>", page, re.DOTALL)]
    assert len(commands) == sum(len(calls) for calls in api_calls().values())
    for command in commands:
        words = shlex.split(command)
        assert words[1].startswith("http://testserver/")
        if "-d" in words:
            assert json.loads(words[words.index("-d") + 1]) not in ({}, [])
    chat = next(command for command in commands if "/v1/chat/completions" in command)
    assert '-H "Authorization: Bearer $HEADWAY_API_KEY"' in chat
    assert "messages" in chat


def test_versions_of_static_files_are_kept_by_browsers() -> None:
    page = client_of(make_person("viewer")).get("/help").content.decode()
    address = re.search(r'"(/static/icon\.svg\?v=\w+)"', page)
    assert address is not None
    assert "immutable" in Client().get(address[1])["Cache-Control"]
    assert "immutable" not in Client().get("/static/icon.svg?v=old")["Cache-Control"]


def test_pages_are_compressed() -> None:
    answer = client_of(make_person("viewer")).get("/help", headers={"accept-encoding": "gzip"})
    assert answer["Content-Encoding"] == "gzip"
    assert len(answer.content) < 8000


def test_names_of_pages_are_those_of_their_paths() -> None:
    paths = {str(address.pattern) for address in urlpatterns}
    for item in ITEMS:
        assert item.address.removeprefix("/") in paths
        assert item.address in ("/", f"/{item.name.lower()}")
