"""The list of incidents: a quiet day, filters, groups, causes, and the on-time share around each incident."""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from controlplane.history.bucket import ENGINE_BYTES, ENGINE_FLOATS, POOL_FLOATS, Column
from controlplane.history.rollups import COARSE_S
from controlplane.history.roster import NO_ENGINES
from controlplane.history.store import PoolHistoryFacts, write_columns
from controlplane.incidents.models.incident import Incident
from controlplane.incidents.rules import RULES, publish_conditions
from controlplane.incidents.watch import IncidentWatch
from controlplane.platform.bus import get_bus
from tests.controlplane.incidents.scene import JobScene
from tests.web.role_clients import client_of, make_person, make_pool
from web.incidents.overview import _covered_s

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def fresh_bus() -> Iterator[None]:
    get_bus.cache_clear()
    yield
    get_bus.cache_clear()


@pytest.fixture
def scene() -> JobScene:
    """Return a world in which an incident has opened and closed."""
    make_pool("pool-0")
    scene = JobScene()
    scene.flood()
    scene.calm()
    return scene


@pytest.fixture
def viewer(db: None) -> Client:
    return client_of(make_person("viewer"))


def words(client: Client, query: str = "") -> str:
    answer = client.get(f"/incidents{query}")
    assert answer.status_code == 200
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", answer.content.decode()))


def copy(incident: Incident, **changes: Any) -> None:
    """Store the incident again with these changes."""
    incident.pk, incident.key = None, f"{incident.key} {changes}"
    for name, value in changes.items():
        setattr(incident, name, value)
    incident.save(force_insert=True)


def test_a_quiet_day_names_the_last_incident_and_what_is_watched(scene: JobScene, viewer: Client) -> None:
    ended = timezone.now() - timedelta(days=3, hours=4)
    Incident.objects.update(onset=ended - timedelta(minutes=5), closed_at=ended, last_bad_at=ended)
    assert "No incident for 3 d 4 h" in words(viewer)
    assert "The jobs process reports no rules : incidents are not detected now." in words(viewer)
    publish_conditions(IncidentWatch(), timezone.now())
    page = words(viewer)
    assert "The last, #1 " in page
    watched = sum(bool(rule.symptom) for rule in RULES)
    assert f"{watched} rules are watched, all ok." in page
    assert "Last 30 days 1 0 in the 30 days before" in page
    assert "Time with incidents 5 min of 30 days; the longest 5 min" in page


def test_a_firing_rule_names_the_incident_that_it_is_part_of(viewer: Client) -> None:
    make_pool("pool-0")
    incident = JobScene().flood()
    publish_conditions(IncidentWatch(), timezone.now())
    assert re.search(rf"firing: Objective burns pool-0 \(part of #{incident.pk} \)", words(viewer))


def test_an_empty_installation_says_what_is_watched(viewer: Client) -> None:
    page = words(viewer)
    assert "No incidents yet" in page
    assert "Nothing has gone wrong yet" in page
    assert "Likely causes" not in page


def test_incidents_are_grouped_with_who_was_hit_and_filtered_by_each_condition(scene: JobScene, viewer: Client) -> None:
    first, now = Incident.objects.get(), timezone.now()
    copy(first, state="open", closed_at=None, onset=now - timedelta(minutes=3))
    copy(first, state="closed", closed_at=now - timedelta(days=40), onset=now - timedelta(days=40), cause="")
    copy(first, closed_at=now - timedelta(days=9), onset=now - timedelta(days=9), cause="engine_lost", pool="other")
    page = words(viewer)
    groups = re.findall(r'scope="rowgroup"[^>]*>([^<]+)<', viewer.get("/incidents").content.decode())
    assert groups[:2] == ["Open", "Today"]
    assert len(groups) == 4
    assert "critical" in page
    assert "most of acme" in page
    assert "Tenant flood 2" in page
    assert "Engine lost 1" in page
    assert "Unsure" not in page.partition("Likely causes")[2].partition("All 4")[0]

    def rows(query: str) -> int:
        return viewer.get(f"/incidents{query}").content.decode().count("<tr data-row>")

    counts = {"": 4, "?state=open": 1, "?cause=tenant_flood": 2, "?cause=unsure": 1, "?pool=other": 1, "?days=30": 3}
    assert {query: rows(query) for query in counts} == counts
    assert rows("?days=x&state=closed") == 3
    assert "No incidents match" in words(viewer, "?pool=none")


def test_a_line_shows_the_on_time_share_around_the_incident(scene: JobScene, viewer: Client) -> None:
    incident = Incident.objects.get()
    assert "<polyline" not in viewer.get("/incidents").content.decode()
    begin = int((incident.onset.timestamp() - 400) // COARSE_S)
    facts = {"pool-0": PoolHistoryFacts("pool-0", "P", "r", "m", "least_cost", "fifo", 1, 1.0, 1.0)}
    floats, codes = [array("f")] * len(ENGINE_FLOATS), [bytearray()] * len(ENGINE_BYTES)
    columns = [
        Column(begin + number, NO_ENGINES, 12, floats, codes, {"pool-0": values(0.5 if number == 2 else 1.0)})
        for number in range(4)
    ]
    write_columns(COARSE_S, columns, [], facts)
    line = re.search(r'<polyline points="([^"]+)"', viewer.get("/incidents").content.decode())
    assert line is not None
    heights = [float(point.partition(",")[2]) for point in line[1].split()]
    assert len(heights) == 4
    assert heights.index(max(heights)) == 2


def values(on_time: float) -> list[float]:
    shown = {"on_time": on_time, "requests_per_s": 5.0}
    return [shown.get(name, 0.0) for name in POOL_FLOATS]


def test_time_with_incidents_counts_overlaps_once() -> None:
    begin = datetime(2026, 11, 1, tzinfo=timezone.get_default_timezone())
    spans = [
        (begin + timedelta(minutes=at), begin + timedelta(minutes=until)) for at, until in ((5, 9), (0, 6), (20, 21))
    ]
    assert _covered_s(spans) == 600.0
