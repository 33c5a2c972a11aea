"""The tour of the first visit, the glossary's links, and the replay's rate on the Fleet page."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from django.contrib.auth.models import User
from django.template import Context, Template
from django.test import override_settings

from simulator.replay.host_pace import PACE_SUFFIX, ReplayPace
from tests.page_text import unbroken
from tests.web.role_clients import client_of, make_person
from web.shell.frame import TOUR, TOUR_COOKIE
from web.shell.glossary import GLOSSARY

pytestmark = pytest.mark.django_db


def _page(path: str, step: str | None = None) -> str:
    client = client_of(User.objects.filter(username="viewer").first() or make_person("viewer"))
    if step is not None:
        client.cookies[TOUR_COOKIE] = step
    return client.get(path).content.decode()


def test_the_tour_begins_on_the_fleet_page() -> None:
    assert "1 of 4" in unbroken(_page("/"))
    assert 'id="tour"' not in _page("/requests")


@pytest.mark.parametrize("step", [1, 2, 3, 4])
def test_each_step_is_on_its_page_and_leads_to_the_next(step: int) -> None:
    page = _page(TOUR[step - 1][1], str(step))
    assert f"{step} of 4" in unbroken(page)
    assert (f'data-tour="{step + 1}"' in page) == (step < 4)
    if step < 4:
        assert f'href="{TOUR[step][1]}"' in page


def test_a_step_on_another_page_leads_back_to_its_own() -> None:
    page = _page("/jobs", "3")
    assert '<a\n        class="button primary" href="/policies">Open</a>' in page
    assert 'data-tour="4"' not in page


@pytest.mark.parametrize("step", ["done", "5", "0", "<b>"])
def test_a_tour_that_has_ended_is_not_shown(step: str) -> None:
    assert 'id="tour"' not in _page("/", step)


def test_a_term_links_to_an_entry_of_the_glossary() -> None:
    term = Template('{% load words %}{% term "cv" "Load CV" %}').render(Context())
    assert term.startswith('<a class="term" href="/help#term-cv" title="Coefficient of variation')
    help_page = _page("/help")
    assert not [key for key in GLOSSARY if f'id="term-{key}"' not in help_page]


def test_the_fleet_page_states_the_rate_of_the_replay(tmp_path: Path) -> None:
    with override_settings(STATE_DIR=tmp_path):
        assert "replaying" not in _page("/")
    pace = ReplayPace(cores=2.0, full=4.0, rate=2.0, since=0.0)
    (tmp_path / f"replay{PACE_SUFFIX}").write_bytes(msgspec.json.encode(pace))
    with override_settings(STATE_DIR=tmp_path):
        assert "2 cores: replaying 2 requests/s, slowed from 4" in unbroken(_page("/"))
