"""The tour of the first visit, the glossary's links, and the replay's rate on the Fleet page."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.test import Client, override_settings

from simulator.replay.host_pace import PACE_SUFFIX, ReplayPace
from tests.page_text import unbroken
from tests.web.role_clients import client_of, make_person
from web.shell.frame import TOUR_PAGES

pytestmark = pytest.mark.django_db
PASSWORD = "correct-horse-battery"


def _page(path: str) -> str:
    return client_of(User.objects.filter(username="viewer").first() or make_person("viewer")).get(path).content.decode()


def _signed_in(person: User) -> Client:
    person.set_password(PASSWORD)
    person.save()
    client = Client()
    client.post("/login", {"username": person.username, "password": PASSWORD})
    return client


def test_the_first_sign_in_of_a_person_begins_the_tour_and_no_later_one_does() -> None:
    person = make_person("viewer")
    assert "1 of 4" in unbroken(_signed_in(person).get("/").content.decode())
    person.refresh_from_db()
    assert 'id="tour"' not in _signed_in(person).get("/").content.decode()


def test_each_step_opens_its_page_and_a_tour_that_was_skipped_does_not_return() -> None:
    client = client_of(make_person("viewer"))
    for step, page in TOUR_PAGES.items():
        assert client.post("/help/tour", {"step": step})["Location"] == page
        assert f"{step} of 4" in unbroken(client.get("/jobs").content.decode())
    assert client.post("/help/tour", {"step": "", "back": "/jobs?failed=1"})["Location"] == "/jobs?failed=1"
    assert 'id="tour"' not in client.get("/").content.decode()


@pytest.mark.parametrize("back", ["//evil.test/", "https://evil.test/", "javascript:alert(1)", ""])
def test_the_end_of_the_tour_leads_to_no_other_site(back: str) -> None:
    assert client_of(make_person("viewer")).post("/help/tour", {"step": "<b>", "back": back})["Location"] == "/"


def test_each_term_links_to_an_entry_of_the_glossary() -> None:
    entries = set(re.findall(r'<dt id="(term-[\w-]+)"', _page("/help")))
    pages = [path.read_text() for path in (settings.BASE_DIR / "templates").rglob("*.html")]
    terms = {term for page in pages for term in re.findall(r'href="/help#(term-[\w-]+)"', page)}
    assert terms <= entries
    assert {"term-in-flight", "term-regret", "term-beta", "term-kv"} <= terms


def test_the_fleet_page_states_the_rate_of_the_replay(tmp_path: Path) -> None:
    with override_settings(STATE_DIR=tmp_path):
        assert "replaying" not in _page("/")
    pace = ReplayPace(2.0, 4.0, 2.0)
    (tmp_path / f"replay{PACE_SUFFIX}").write_bytes(msgspec.json.encode(pace))
    with override_settings(STATE_DIR=tmp_path):
        assert "2 cores: replaying 2 requests/s, slowed from 4" in unbroken(_page("/"))
