"""The Requests page grouped, sorted, limited by thresholds, rolled up, and exported."""

from __future__ import annotations

import json
import re

import pytest
from django.test import Client

from routing.values import reasons
from tests.controlplane.request_log.store.records import START, keep, on_time, stored
from tests.page_text import page_text
from tests.web.role_clients import client_of, make_person, make_pool

pytestmark = pytest.mark.django_db
WHEN = "since=2027-01-15T08:00:00&until=2027-01-15T08:10:00"


@pytest.fixture
def viewer(db: None) -> Client:
    """Store one late and two timely requests, and five equal rejections, in one pool."""
    make_pool("pool-a")
    keep(stored("late-1"), on_time("d-2", START + 1), on_time("d-3", START + 2, tenant_id="=other"))
    rejected = {"engine_id": "", "reason": reasons.GATEWAY_LATE, "outcome": "rejected", "first_token_after_s": None}
    keep(*(stored(f"r-{number}", START + 10 + number, cached_tokens=None, **rejected) for number in range(5)))
    return client_of(make_person("viewer"))


def show(client: Client, query: str, status: int = 200) -> str:
    answer = client.get(f"/requests?{query}")
    assert answer.status_code == status
    return page_text(answer).replace("\u202f", " ")


def cells(page: str) -> list[list[str]]:
    body = page[page.index("<tbody>") : page.index("</tbody>", page.index("<tbody>"))]
    rows = re.findall(r"<tr.*?</tr>", body, re.DOTALL)
    return [[re.sub("<[^>]*>", "", cell).strip() for cell in re.findall(r"<t[hd].*?</t[hd]>", row)] for row in rows]


def groups(client: Client, query: str) -> list[list[str]]:
    page = show(client, f"{WHEN}&{query}")
    return cells(page[page.index("Requests by") :])


def test_groups_count_each_state_and_link_to_their_requests(viewer: Client) -> None:
    by_tenant = groups(viewer, "group=tenant")
    assert by_tenant == [
        ["acme", "7", "87.5 %", "1", "0", "5", "400 ms", "3.97 s"],
        ["=other", "1", "12.5 %", "0", "0", "0", "400 ms", "400 ms"],
    ]
    page = show(viewer, f"{WHEN}&group=tenant")
    address = re.search(
        r'href="(/requests\?[^"]*state=rejected[^"]*tenant=acme[^"]*|[^"]*tenant=acme[^"]*rejected)"', page
    )
    assert address is not None
    assert "5 × Rejected" in viewer.get(address[1].replace("&amp;", "&")).content.decode()


@pytest.mark.parametrize(
    ("query", "first"),
    [
        ("group=reason", "Rejected, gateway late"),
        ("group=engine", "no engine"),
        ("group=cause&tenant=%3Dother", "none"),
        ("group=prompt", "4,000 to 15,999 tokens"),
        ("group=tenant&sort=p90", "acme"),
        ("group=tenant&sort=nonsense", "acme"),
    ],
)
def test_each_grouping_has_readable_names(viewer: Client, query: str, first: str) -> None:
    assert groups(viewer, query)[0][0] == first


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ("ttft_from=2.5", {"late-1"}),
        ("prompt_from=11904&state=on_time", {"d-2", "d-3"}),
        ("prompt_below=11904", set()),
        ("regret_from=0.001", {"late-1"}),
    ],
)
def test_thresholds_limit_the_list(viewer: Client, query: str, names: set[str]) -> None:
    assert set(re.findall(r'href="/requests/([a-z]+-\d)"', show(viewer, query))) == names


@pytest.mark.parametrize("query", ["ttft_from=slow", "prompt_from=-1", "regret_from=nan"])
def test_unreadable_thresholds_are_named(viewer: Client, query: str) -> None:
    assert "is not a number of" in show(viewer, query, 400)
    assert viewer.get(f"/requests.csv?{query}").status_code == 400


def test_sorting_lists_the_highest_first_and_stops_the_tap(viewer: Client) -> None:
    page = show(viewer, f"{WHEN}&sort=ttft")
    assert re.findall(r'href="/requests/([a-z]+-\d)"', page)[0] == "late-1"
    assert 'aria-sort="descending"' in page
    assert "data-tap" not in page


def test_equal_rejections_share_one_line_that_lists_them(viewer: Client) -> None:
    page = show(viewer, "")
    assert "5 × Rejected" in page
    assert "/requests/r-3" not in page
    address = re.search(r'href="(/requests\?[^"]*each=1[^"]*)"', page)
    assert address is not None
    page = show(viewer, address[1].replace("&amp;", "&").partition("?")[2])
    assert len(set(re.findall(r'href="/requests/(r-\d)"', page))) == 5


def test_chips_show_times_as_dates_and_every_rejection_can_be_chosen(viewer: Client) -> None:
    page = show(viewer, f"since={START:.0f}&until={START + 600:.0f}")
    assert "15 Jan 08:00:00 UTC" in page
    assert all(f'value="{code}"' in page for code in reasons.REJECTIONS)


def test_exports_contain_the_matching_requests(viewer: Client) -> None:
    rows = viewer.get("/requests.csv?state=on_time").content.decode().splitlines()
    assert len(rows) == 3
    assert "'=other" in rows[1]
    answer = json.loads(viewer.get("/requests.json?tenant=acme").content)
    assert len(answer["requests"]) == 7
    assert answer["requests"][0]["id"] == "r-4"


def test_exports_contain_only_visible_pools(viewer: Client) -> None:
    stranger = client_of(make_person("pool_viewer", make_pool("pool-b")))
    assert json.loads(stranger.get("/requests.json").content)["requests"] == []
