"""The Regions page: its visibility, and its texts on full regions, broken links, and taken-over engines."""

from __future__ import annotations

import re
from collections.abc import Callable

import msgspec
import pytest
from django.test import Client
from django.utils import timezone

from controlplane.capacity.demand import LoggedDemand
from gateway.contracts.fleet_sample import FleetSample, HandOvers
from tests.web.regions.some_regions import busy, gateway, link, orphaned, sample
from tests.web.role_clients import ROLES, client_of, make_person, make_pool
from web.regions import page as regions_page
from web.regions.flow import flow
from web.regions.page import _finding, _forwards
from web.regions.region_rows import region_rows

pytestmark = pytest.mark.django_db


@pytest.fixture
def show_sample(monkeypatch: pytest.MonkeyPatch) -> Callable[[FleetSample | None], None]:
    """Make the page show this sample."""

    def show(shown: FleetSample | None) -> None:
        class Samples:
            latest = shown

        monkeypatch.setattr(regions_page, "fleet_samples", Samples)

    show(None)
    return show


def text(client: Client, query: str = "") -> str:
    answer = client.get(f"/regions{query}")
    assert answer.status_code == 200
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", answer.content.decode()))


@pytest.fixture
def viewer(show_sample: Callable[[FleetSample | None], None]) -> Client:
    return client_of(make_person("viewer"))


@pytest.mark.parametrize("role", ROLES)
def test_regions_page_requires_a_role_in_all_pools(
    role: str, show_sample: Callable[[FleetSample | None], None]
) -> None:
    show_sample(busy())
    answer = client_of(make_person(role, make_pool())).get("/regions")
    assert answer.status_code == (200 if role in ("viewer", "operator", "admin", "superuser") else 403)
    assert (b"10.3/s to eu" in answer.content) == (answer.status_code == 200)


def test_single_region_fleet_shows_how_to_add_regions(viewer: Client) -> None:
    page = text(viewer)
    assert "No gateway has other regions configured" in page
    assert "HEADWAY_REGION_PEERS" in page


def test_each_region_has_the_ttft_of_its_slowest_pool_and_its_own_peak(
    viewer: Client, show_sample: Callable[[FleetSample | None], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet = busy()
    slow = msgspec.structs.replace(fleet.pools[1], pool_id="pool-eu-2", ttft_p90_s=9.5, on_time_share=0.4)
    fleet = msgspec.structs.replace(fleet, pools=(*fleet.pools, slow))
    rows = {row.name: row for row in region_rows(fleet, {"eu": 3.2})}
    assert (rows["eu"].ttft_p90_s, rows["eu"].on_time, rows["eu"].peak) == (9.5, 0.4, 3.2)
    assert (rows["us"].ttft_p90_s, rows["us"].peak) == (fleet.pools[2].ttft_p90_s, None)
    demand = LoggedDemand({"eu": [0.7, 2.24], "us": [0.0, 0.0]}, 0.0, 1800.0, 9, 1)
    monkeypatch.setattr(regions_page, "stored_demand", lambda: (demand, timezone.now()))
    show_sample(fleet)
    page = text(viewer)
    assert "9.50 s 40.0 % on time" in page
    assert "3.2 engines needed, 70.0 % busy" in page


def test_single_region_shows_its_traffic_and_engines(
    viewer: Client, show_sample: Callable[[FleetSample | None], None]
) -> None:
    fleet = sample()
    show_sample(msgspec.structs.replace(fleet, pools=fleet.pools[:1]))
    page = text(viewer)
    assert f"asia, the only region: {fleet.pools[0].requests_per_s:.1f} requests/s, " in page
    assert "Where requests arrive" not in page
    assert "Links up" not in page
    assert "Epoch" not in page
    assert "No gateway has other regions configured" in page


def test_page_shows_forwarding_between_regions(
    viewer: Client, show_sample: Callable[[FleetSample | None], None]
) -> None:
    show_sample(busy())
    page = text(viewer, "?fragment=1")
    assert "Link asia → us is down; no requests are sent over it." in page
    assert "10.3/s to eu, 11" in page
    assert "3.9/s to asia, 4" in page
    assert "5 of 6" in page
    assert "Silent" in page
    assert "<html" not in viewer.get("/regions?fragment=1").content.decode()


def test_page_shows_the_region_whose_gateway_died(
    viewer: Client, show_sample: Callable[[FleetSample | None], None]
) -> None:
    show_sample(orphaned())
    page = text(viewer)
    assert "us serves the engines of eu, whose gateway has died." in page
    assert "epoch 4, served by us" in page
    assert "Refuses connections" in page


def test_outgoing_and_incoming_rates_have_one_scale() -> None:
    rows = region_rows(busy())
    assert [row.name for row in rows] == ["asia", "eu", "us"]
    assert rows[2].arriving_per_s == pytest.approx(92.0)
    assert rows[2].forwarded_share == pytest.approx(14.2 / 92.0)
    assert rows[1].served_per_s == pytest.approx(42.8 + 10.3)
    picture = flow(rows)
    assert len(picture["bars"]) == 6
    assert len(picture["ribbons"]) == 3 + 3
    assert max(height for _, _, height in picture["bars"]) == pytest.approx(78.0)
    assert "us forwards 10.3 requests per second to eu" in picture["words"]


def test_fleet_without_traffic_has_a_forwarded_share_of_zero() -> None:
    rows = region_rows(sample(gateway("eu", 0.0, {}, (link("us"),))))
    assert flow(rows)["words"] == "No region forwards requests"
    assert rows[0].forwarded_share == 0.0


def test_hand_overs_are_summed_over_gateways_with_their_reason(
    viewer: Client, show_sample: Callable[[FleetSample | None], None]
) -> None:
    fleet = busy()
    show_sample(fleet)
    assert "No hand-overs in the last hour" in text(viewer)
    full = HandOvers(region="eu", reason="no_local_room", requests=40, late=3, failed=1, first_tokens=20, ttft_s=50.0)
    us = msgspec.structs.replace(fleet.regions[2], hand_overs=(full,))
    again = msgspec.structs.replace(us, tag="us-2", local_per_s=0.0, forwarded_per_s={})
    show_sample(msgspec.structs.replace(fleet, regions=(*fleet.regions[:2], us, again)))
    page = text(viewer).replace("\u202f", " ")
    assert "us → eu 80 No local engine had capacity within an acceptable wait. 2.50 s 6 2" in page


def test_the_headline_agrees_with_the_flow() -> None:
    rows = region_rows(busy())
    assert _forwards(rows).replace("\u202f", " ") == "us forwards 11.2 % of its requests to eu."
    # What was sent before a link went down is no forwarding now.
    cut = gateway("us", 90.0, {"eu": 10.0}, (link("eu", up=False), link("asia")))
    assert _forwards(region_rows(sample(cut))) == ""
    little = gateway("us", 999.0, {"eu": 1.0}, (link("eu"),))
    assert "us forwards 0.1" in _finding(region_rows(sample(little, gateway("eu", 5.0, {}, (link("us"),)))))[0]
