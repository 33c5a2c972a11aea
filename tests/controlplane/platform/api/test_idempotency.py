"""A POST that is repeated with the same Idempotency-Key takes effect once."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from controlplane.fleet.models.region import Region
from controlplane.platform import idempotency
from controlplane.platform.models.audit_event import AuditEvent
from controlplane.platform.models.idempotency_record import IdempotencyRecord
from tests.controlplane.platform.api.request_examples import CHANGES
from tests.controlplane.platform.api.test_role_matrix import ASK_ONLY, dump, real, said
from tests.controlplane.platform.api.world import Api, World

pytestmark = pytest.mark.django_db
THERE = {"slug": "there", "name": "There"}


POSTS = [key for key in CHANGES if key[1] == "POST" and key[0] not in {*ASK_ONLY, "ManifestDiff"}]


@pytest.mark.parametrize("key", POSTS, ids=" ".join)
def test_repeated_request_changes_nothing_and_has_the_same_response(world: World, key: tuple[str, str]) -> None:
    api, example = Api(world), CHANGES[key]
    path = real(world, example.path)
    body = said(example.body)
    first = api.call("POST", path, body, example.media_type, Idempotency_Key="once")
    before = dump()
    second = api.call("POST", path, body, example.media_type, Idempotency_Key="once")
    assert first.status_code == second.status_code == example.status
    assert dump() == before
    if example.status < 400:
        assert second["Idempotency-Replayed"] == "true"
        assert second.json() == first.json() | ({"text": None} if "text" in first.json() else {})
        assert second.headers.get("ETag") == first.headers.get("ETag")


def test_other_body_under_the_same_key_is_an_error(api: Api) -> None:
    api.post("regions", THERE, Idempotency_Key="k")
    answer = api.post("regions", {**THERE, "name": "Elsewhere"}, Idempotency_Key="k")
    assert answer.status_code == 422
    assert Region.objects.get(slug="there").name == "There"


def test_order_of_json_members_is_ignored(api: Api) -> None:
    api.post("regions", THERE, Idempotency_Key="k")
    assert api.post("regions", dict(reversed(THERE.items())), Idempotency_Key="k").status_code == 201


def test_idempotency_keys_of_different_callers_are_separate(world: World) -> None:
    assert Api(world).post("regions", THERE, Idempotency_Key="k").status_code == 201
    other = Api(world, "admin_key").post("regions", {"slug": "else", "name": "E"}, Idempotency_Key="k")
    assert other.status_code == 201
    assert "Idempotency-Replayed" not in other


def test_a_rejected_request_frees_its_key(api: Api) -> None:
    assert api.post("regions", {"slug": "here", "name": "x"}, Idempotency_Key="k").status_code == 400
    assert api.post("regions", THERE, Idempotency_Key="k").status_code == 201


@pytest.mark.parametrize("key", ["", "with space", "x" * 129, "ümlaut"])
def test_invalid_key_is_reported(api: Api, key: str) -> None:
    answer = api.post("regions", THERE, Idempotency_Key=key)
    assert answer.status_code == 400
    assert answer.json()["errors"][0]["path"] == "Idempotency-Key"


def test_request_in_progress_is_not_repeated(world: World, api: Api) -> None:
    api.post("regions", THERE, Idempotency_Key="k")
    IdempotencyRecord.objects.update(status=None)
    answer = api.post("regions", THERE, Idempotency_Key="k")
    assert (answer.status_code, answer["Retry-After"]) == (409, "1")


def test_request_of_a_crashed_process_is_resumed(api: Api) -> None:
    api.post("tenants", THERE, Idempotency_Key="k")
    IdempotencyRecord.objects.update(status=None, body=None, created_at=timezone.now() - 2 * idempotency.UNDER_WAY)
    assert api.post("tenants", THERE, Idempotency_Key="k").status_code == 400
    assert not IdempotencyRecord.objects.exists()


def test_responses_are_deleted_after_a_day(api: Api) -> None:
    drain = ("engines/e-a/state", {"state": "draining"})
    assert api.post(*drain, Idempotency_Key="k").status_code == 200
    assert "Idempotency-Replayed" in api.post(*drain, Idempotency_Key="k")
    IdempotencyRecord.objects.update(created_at=timezone.now() - idempotency.KEPT - timedelta(seconds=1))
    assert "Idempotency-Replayed" not in api.post(*drain, Idempotency_Key="k")


def test_number_of_stored_responses_is_limited(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(idempotency, "MAX_RECORDS", 3)
    for number in range(6):
        api.post("engines/e-a/state", {"state": "ready"}, Idempotency_Key=f"k{number}")
    assert sorted(IdempotencyRecord.objects.values_list("key", flat=True)) == ["k3", "k4", "k5"]


def test_api_key_text_is_never_stored(api: Api) -> None:
    text = api.post("keys", {"tenant": "acme", "name": "ci"}, Idempotency_Key="k").json()["text"]
    assert text.startswith("hw_")
    assert text[11:] not in dump()


class KilledError(BaseException):
    """Simulates the end of the process."""


def effects() -> list[str]:
    """Return everything that is stored except records of idempotent requests."""
    return [line for line in dump().splitlines() if "idempotencyrecord" not in line]


def late() -> None:
    """Let the first request time out."""
    IdempotencyRecord.objects.update(created_at=timezone.now() - 2 * idempotency.UNDER_WAY)


@pytest.mark.parametrize("key", [key for key in POSTS if CHANGES[key].status < 400], ids=" ".join)
def test_retry_after_a_kill_before_the_response_has_no_second_effect(
    world: World, key: tuple[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    api, example = Api(world), CHANGES[key]
    path, body = real(world, example.path), said(example.body)
    changes = AuditEvent.objects.count()
    with monkeypatch.context() as killed:
        killed.setattr("controlplane.platform.api.idempotency.settle", lambda *_: raise_killed())
        with pytest.raises(KilledError):
            api.call("POST", path, body, example.media_type, Idempotency_Key="once")
    late()
    before = effects()
    answer = api.call("POST", path, body, example.media_type, Idempotency_Key="once")
    assert effects() == before
    if AuditEvent.objects.count() > changes:
        assert answer.status_code == 409
        assert "took effect" in answer.json()["detail"]


def raise_killed() -> None:
    raise KilledError


def test_timed_out_request_that_was_taken_over_has_no_effect(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    from controlplane.platform import audit

    recorded = audit.note_effect

    def taken_over(what: str) -> None:
        late()
        recorded(what)

    monkeypatch.setattr(audit, "note_effect", taken_over)
    answer = api.post("regions", THERE, Idempotency_Key="k")
    assert answer.status_code == 409
    assert not Region.objects.filter(slug="there").exists()
