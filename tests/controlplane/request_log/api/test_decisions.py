"""`/api/v1/decisions`: filters, full records by id, and visibility by pool."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.core.management import CommandError, call_command
from django.test import override_settings

from controlplane.request_log.models.decision_index import DecisionIndex
from controlplane.request_log.models.segment import Segment
from gateway.contracts.stored_decision import DIGESTS, session_digest
from kvstore.keys.keyring import Keyring
from tests.controlplane.conftest import bus
from tests.controlplane.platform.api.world import Api, World
from tests.controlplane.request_log.store.records import START, keep, on_time, stored

__all__ = ["bus"]

LATE = "0199f3c2-7d41-7c0e-8000-000000000001"
SECRET = b"a secret of this test"


@pytest.fixture
def recorded(world: World, tmp_path: Path) -> Iterator[World]:
    """Store four decisions: one late in pool a, two on time in it, one on time in pool b."""
    DecisionIndex.objects.all().delete()
    with override_settings(STATE_DIR=tmp_path, FLEET_SECRET=SECRET):
        keep(
            stored(LATE, START, session=session_digest(Keyring.of(SECRET).used.derive(DIGESTS), "s-1")),
            on_time("d-2", START + 1, arm="live"),
            on_time("d-3", START + 2, tenant_id="other", arm="canary", client_request_id="job-7"),
            stored("d-4", START + 3, pool_id="pool-b", late=False, mismatch="", regret=None, candidates=()),
        )
        yield world


def ids(world: World, query: str = "", caller: str = "admin") -> list[str]:
    answer = Api(world, caller).get(f"decisions{query}")
    assert answer.status_code == 200, answer.content
    return [row["id"] for row in answer.json()["results"]]


@pytest.mark.parametrize(("also", "expected"), [(SECRET, [LATE]), (b"", [])])
def test_session_is_searched_under_both_secrets_during_a_rotation(
    recorded: World, also: bytes, expected: list[str]
) -> None:
    with override_settings(FLEET_SECRET=b"the secret after this one", FLEET_SECRET_ALSO=also):
        assert ids(recorded, "?session=s-1") == expected
        assert ids(recorded, "?session=s-1&session=s-2") == expected


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("", ["d-4", "d-3", "d-2", LATE]),
        ("?ordering=at", [LATE, "d-2", "d-3", "d-4"]),
        ("?late=true", [LATE]),
        ("?pool=pool-b", ["d-4"]),
        ("?engine=engine-17&limit=1", ["d-4"]),
        ("?tenant=other", ["d-3"]),
        ("?session=s-1", [LATE]),
        (f"?session={session_digest(Keyring.of(SECRET).used.derive(DIGESTS), 's-1')}", [LATE]),
        ("?regret_cause=trade", [LATE]),
        ("?mismatch=late_event", [LATE]),
        ("?client_request_id=job-7", ["d-3"]),
        ("?id=d-2&id=d-3", ["d-3", "d-2"]),
        ("?since=2027-01-15T08:00:02Z", ["d-4", "d-3"]),
        ("?until=2027-01-15T08:00:01Z", [LATE]),
        ("?outcome=failed", []),
        ("?arm=canary", ["d-3"]),
        ("?arm=live", ["d-2"]),
        ("?arm=canary&arm=live", ["d-3", "d-2"]),
        ("?arm=control", []),
    ],
)
def test_every_filter_selects_its_decisions(recorded: World, query: str, expected: list[str]) -> None:
    assert ids(recorded, query) == expected


def test_pages_have_no_gap_and_no_repetition(recorded: World) -> None:
    api, address, seen = Api(recorded), "/api/v1/decisions?limit=1", []
    while address:
        page = api.get(address).json()
        seen += [row["id"] for row in page["results"]]
        address = page["next"]
    assert seen == ["d-4", "d-3", "d-2", LATE]


@pytest.mark.parametrize("query", ["since=yesterday", "late=maybe", "mismatch=magic", "arm=left", "color=red"])
def test_an_invalid_filter_is_rejected_with_a_reason(recorded: World, query: str) -> None:
    answer = Api(recorded).get(f"decisions?{query}")
    assert answer.status_code == 400
    assert answer.json()["errors"]


def test_people_see_only_decisions_of_their_pools(recorded: World) -> None:
    assert ids(recorded, caller="operator_b") == ["d-4"]
    assert ids(recorded, caller="viewer_a") == ["d-3", "d-2", LATE]
    assert Api(recorded, "operator_b").get(f"decisions/{LATE}").status_code == 404
    assert Api(recorded, "nobody").get("decisions").status_code == 403


def detail(world: World, name: str = LATE) -> dict[str, Any]:
    answer = Api(world).get(f"decisions/{name}")
    assert answer.status_code == 200, answer.content
    return dict(answer.json())


def test_decision_is_returned_in_full(recorded: World) -> None:
    shown = detail(recorded)
    assert shown["stored"] is True
    assert shown["story"]["title"].startswith("Sent to e-17 for its cache; e-04")
    assert [item["engine_id"] for item in shown["record"]["decision"]["candidates"]] == ["engine-17", "engine-04"]
    assert shown["record"]["regret"]["trade_s"] == pytest.approx(2.03)
    assert shown["record"]["known"][0]["report_age_s"] == 0.062


def test_unreadable_record_is_reported(recorded: World) -> None:
    Segment.objects.update(data=b"damaged")
    answer = Api(recorded).get(f"decisions/{LATE}")
    assert answer.status_code == 404
    assert "it cannot be read" in answer.json()["detail"]


def test_an_unknown_id_is_not_found(recorded: World) -> None:
    assert Api(recorded).get("decisions/nobody-made-it").status_code == 404


def test_command_prints_the_same_explanation(recorded: World) -> None:
    out = io.StringIO()
    call_command("explain", LATE, stdout=out)
    text = out.getvalue()
    assert "Sent to e-17 for its cache; e-04 would have been 2.73 s faster" in text
    assert "e-17 *" in text
    assert "Load: waited for cached blocks" in text
    assert "β were under 5.83 (it was 8)" in text
    call_command("explain", LATE, "--json", stdout=out)
    assert '"trade_s": 2.03' in out.getvalue()
    call_command("explain", "job-7", stdout=out)
    assert "X-Request-Id       job-7" in out.getvalue()
    with pytest.raises(CommandError, match="No recorded decision"):
        call_command("explain", "nobody-made-it")
