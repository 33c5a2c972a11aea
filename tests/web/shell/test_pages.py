"""Pages: a first paint with content, no inline code, and few queries.

Static files are sent completely, so that Django emits no iterator warning under ASGI.
"""

from __future__ import annotations

import re
from pathlib import Path

import msgspec
import pytest
from django.contrib.auth.models import User
from django.contrib.staticfiles import finders
from django.test import AsyncClient, Client
from pytest_django import DjangoAssertNumQueries

from gateway.contracts.fleet_sample import FleetSample
from tests.page_text import page_text
from tests.web.fake_fleet import LOST_AT, FakeFleet
from tests.web.role_clients import make_pool
from web.live.feed import FleetFeed
from web.shell.frame import ITEMS

pytestmark = pytest.mark.django_db
START = 1_800_000_000.0
PAGES = ["/", "/policies", "/engines"]
QUERIES = 6
"""Session, account, running trials and their count, and what the pools' policies call uneven.

Pages read the fleet from memory."""


@pytest.fixture
def signed_in(client: Client, feed: FleetFeed) -> Client:
    client.force_login(User.objects.create(username="op", is_superuser=True))
    return client


def show(feed: FleetFeed, sample: FleetSample) -> None:
    feed.take(sample)


@pytest.mark.parametrize("page", [page for page in PAGES if page not in ("/policies", "/engines")])
def test_pages_take_a_fixed_number_of_queries(
    signed_in: Client, page: str, django_assert_num_queries: DjangoAssertNumQueries
) -> None:
    with django_assert_num_queries(QUERIES):
        assert signed_in.get(page).status_code == 200


@pytest.mark.parametrize("page", [*PAGES, "/login"])
def test_pages_have_a_strict_policy_and_no_inline_code(signed_in: Client, feed: FleetFeed, page: str) -> None:
    show(feed, FakeFleet(4, 2).sample_at(LOST_AT + 5, START))
    if page == "/login":
        signed_in.logout()
    answer = signed_in.get(page)
    policy = answer["Content-Security-Policy"]
    assert "default-src 'self'" in policy
    assert "unsafe" not in policy
    text = page_text(answer)
    assert not re.search(r"<style|\sstyle=|\son[a-z]+=|javascript:", text)
    assert all("src=" in tag for tag in re.findall(r"<script[^>]*>", text))
    assert not re.search(r'(?:src|href)="(?:https?:)?//', text)


@pytest.mark.parametrize("page", PAGES)
def test_pages_without_a_sample_report_that(signed_in: Client, page: str) -> None:
    assert "has not published a fleet sample" in page_text(signed_in.get(page))


def test_first_paint_has_the_verdict(signed_in: Client, feed: FleetFeed) -> None:
    show(feed, FakeFleet(4, 2).sample_at(LOST_AT + 5, START))
    text = page_text(signed_in.get("/"))
    assert "e-04 is lost." in text
    assert 'data-severity="bad"' in text
    assert "eu-west" in text


def test_markup_in_engine_names_is_escaped(signed_in: Client, feed: FleetFeed) -> None:
    sample = FakeFleet(2, 1).sample_at(0, START)
    bad = msgspec.structs.replace(
        sample.engines[0], name="<script>alert(1)</script>", state="lost", reason='"><img src=x onerror=alert(1)>'
    )
    show(feed, msgspec.structs.replace(sample, engines=(bad, *sample.engines[1:])))
    for page in PAGES:
        text = page_text(signed_in.get(page))
        assert "<script>alert" not in text
        assert "<img" not in text


def test_every_page_of_the_navigation_exists_and_marks_its_entry(signed_in: Client) -> None:
    for item in ITEMS:
        text = page_text(signed_in.get(item.address))
        assert re.search(rf'href="{item.address}" aria-current="page"', text)
        assert f'id="i-{item.icon}"' in text


@pytest.mark.parametrize(
    ("cookie", "attribute"), [("light", ' data-theme="light"'), ("dark", ' data-theme="dark"'), ('"><b>', "")]
)
def test_stored_theme_is_in_the_first_paint(signed_in: Client, cookie: str, attribute: str) -> None:
    signed_in.cookies["theme"] = cookie
    assert f'<html lang="en"{attribute} data-time-zone=' in page_text(signed_in.get("/"))


def test_pages_reject_changing_methods(signed_in: Client) -> None:
    assert [signed_in.post(page).status_code for page in PAGES] == [405, 405, 405]


def test_load_cv_chart_has_the_limit_of_the_pools_policy(signed_in: Client) -> None:
    make_pool("chat")
    assert 'data-limits="{&quot;chat&quot;: 0.8}"' in page_text(signed_in.get("/"))


ICON = "/static/icon.svg"


def icon() -> bytes:
    return Path(finders.find("icon.svg")).read_bytes()


def test_file_is_sent_completely_with_type_and_validator() -> None:
    answer = Client().get(ICON)
    assert answer.status_code == 200
    assert not answer.streaming
    assert answer.content == icon()
    assert answer["Content-Type"] == "image/svg+xml"
    assert answer["Content-Length"] == str(len(icon()))
    assert answer["ETag"]


# Warnings are errors here: this fails where Django has to read a blocking iterator.
async def test_asgi_server_emits_no_warning() -> None:
    answer = await AsyncClient().get(ICON)
    assert answer.content == icon()


def test_client_with_a_current_copy_gets_no_body() -> None:
    etag = Client().get(ICON)["ETag"]
    answer = Client().get(ICON, headers={"If-None-Match": etag})
    assert (answer.status_code, answer.content) == (304, b"")


def test_range_request_gets_only_that_range() -> None:
    answer = Client().get(ICON, headers={"Range": "bytes=2-5"})
    assert (answer.status_code, answer.content) == (206, icon()[2:6])
    assert answer["Content-Range"] == f"bytes 2-5/{len(icon())}"


@pytest.mark.parametrize(("method", "status"), [("head", 200), ("post", 405)])
def test_static_files_accept_only_reads(method: str, status: int) -> None:
    answer = getattr(Client(), method)(ICON)
    assert (answer.status_code, answer.content) == (status, b"")
