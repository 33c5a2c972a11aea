"""The tour of the first visit, the glossary's links, and the replay's rate on the Fleet page."""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest
from django.conf import settings
from django.contrib.auth.models import User
from django.test import override_settings

from simulator.replay.host_pace import PACE_SUFFIX, ReplayPace
from tests.page_text import unbroken
from tests.web.role_clients import client_of, make_person
from web.shell.frame import TOUR_COOKIE

pytestmark = pytest.mark.django_db


def _page(path: str, step: str | None = None) -> str:
    client = client_of(User.objects.filter(username="viewer").first() or make_person("viewer"))
    if step is not None:
        client.cookies[TOUR_COOKIE] = step
    return client.get(path).content.decode()


def test_the_tour_begins_on_the_fleet_page() -> None:
    assert "1 of 4" in unbroken(_page("/"))
    assert 'id="tour"' not in _page("/requests")


@pytest.mark.parametrize(("step", "following"), [("1", "/requests"), ("2", "/policies"), ("3", "/engines"), ("4", "")])
def test_each_step_leads_to_the_next_from_any_page(step: str, following: str) -> None:
    page = unbroken(_page("/jobs", step))
    assert f"{step} of 4" in page
    assert (f'href="{following}" data-tour="{int(step) + 1}"' in page) == bool(following)


@pytest.mark.parametrize("step", ["done", "5", "0", "<b>"])
def test_a_tour_that_has_ended_is_not_shown(step: str) -> None:
    assert 'id="tour"' not in _page("/", step)


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
