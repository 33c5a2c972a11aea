"""`/fleet/history`: permissions, responses, and the number of queries."""

from __future__ import annotations

import time

import pytest
from django.contrib.auth.models import User
from django.test import Client
from pytest_django import DjangoAssertNumQueries

from tests.controlplane.history.test_rollups import fed, run
from tests.web.fake_fleet import FakeFleet
from tests.web.live.frame_reader import read_frame
from web.live.feed import FleetFeed

pytestmark = pytest.mark.django_db


@pytest.fixture
def signed_in(client: Client, feed: FleetFeed) -> Client:
    client.force_login(User.objects.create(username="op", is_superuser=True))
    return client


@pytest.fixture
def stored() -> float:
    """Store two minutes of a fleet that just ended; return the current time."""
    now, fleet = time.time(), FakeFleet(4, 2)
    run(fed([fleet.sample_at(float(step), now - 120) for step in range(120)]), now)
    return now


def test_history_requires_a_login(client: Client, feed: FleetFeed) -> None:
    assert client.get("/fleet/history?range=1h").status_code == 302


@pytest.mark.parametrize("name", ["5m", "1h", "24h"])
def test_response_is_a_keyframe_in_few_queries(
    signed_in: Client, stored: float, name: str, django_assert_max_num_queries: DjangoAssertNumQueries
) -> None:
    # Session, account, columns, their names, the strip; a day also has a tail of short columns.
    queries = {"5m": 5, "1h": 5, "24h": 7}[name]
    with django_assert_max_num_queries(queries):
        answer = signed_in.get(f"/fleet/history?range={name}")
    assert answer["Content-Type"] == "application/octet-stream"
    assert "no-store" in answer["Cache-Control"]
    frame = read_frame(answer.content)
    assert (frame.head["kind"], frame.head["range"]) == ("keyframe", name)
    assert len(frame.head["engines"]) == 4


def test_response_holds_the_columns_that_follow(signed_in: Client, stored: float, feed: FleetFeed) -> None:
    feed.take(FakeFleet(4, 2).sample_at(0, stored))
    head = read_frame(signed_in.get("/fleet/history?range=1h").content).head
    query = {"range": "1h", "after": str(head["index"] - 3), "roster": head["roster"]}
    frame = read_frame(signed_in.get("/fleet/history", query).content, 4, 2)
    assert frame.head["kind"] == "more"
    assert frame.head["columns"] in (3, 4)


@pytest.mark.parametrize(
    "query",
    [
        "",
        "?range=2h",
        "?range=1h&end=never",
        "?range=1h&after=-1",
        "?range=1h&after=" + "9" * 30,
        "?range=1h&end=1e400",
    ],
)
def test_invalid_query_is_rejected_with_a_message(signed_in: Client, query: str) -> None:
    answer = signed_in.get(f"/fleet/history{query}")
    assert answer.status_code == 400
    assert len(answer.json()["error"]) > 20


def test_request_changes_nothing(signed_in: Client) -> None:
    assert signed_in.post("/fleet/history?range=1h").status_code == 405


def test_page_of_a_thousand_engines_takes_under_300_ms_of_cpu(signed_in: Client, feed: FleetFeed) -> None:
    now, fleet = time.time(), FakeFleet(1000, 2)
    samples = [fleet.sample_at(float(step * 5), now - 300) for step in range(60)]
    run(fed(samples), now)
    for sample in samples[-20:]:
        feed.take(sample)
    for page in ("/", "/fleet/history?range=5m"):
        costs = []
        for _ in range(3):
            before = time.process_time()
            assert signed_in.get(page).status_code == 200
            costs.append(time.process_time() - before)
        assert min(costs) < 0.3, page
