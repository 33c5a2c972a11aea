"""ETags: clients skip unchanged objects, and do not overwrite changes that they have not read (R18)."""

from __future__ import annotations

import random
from typing import Any

import pytest

from controlplane.fleet.models.engine import Engine
from controlplane.fleet.models.region import Region
from tests.controlplane.platform.api.request_examples import CHANGES
from tests.controlplane.platform.api.test_role_matrix import real
from tests.controlplane.platform.api.world import Api, World

pytestmark = pytest.mark.django_db
GUARDED = [key for key in CHANGES if CHANGES[key].guarded]


def test_object_has_a_weak_etag_of_its_revision(api: Api) -> None:
    answer = api.get("engines/e-a")
    assert answer["ETag"] == 'W/"1"'
    assert answer.json()["revision"] == 1


def test_unchanged_object_is_not_sent_again(api: Api) -> None:
    etag = api.get("engines/e-a")["ETag"]
    answer = api.get("engines/e-a", If_None_Match=f'"x", {etag}')
    assert (answer.status_code, answer.content, answer["ETag"]) == (304, b"", etag)
    assert api.change("PATCH", "engines/e-a", {"speed": 2.0}).status_code == 200
    assert api.get("engines/e-a", If_None_Match=etag).status_code == 200


@pytest.mark.parametrize("key", GUARDED, ids=" ".join)
@pytest.mark.parametrize("tags", [None, "*", "nonsense"])
def test_change_without_if_match_is_rejected(world: World, key: tuple[str, str], tags: str | None) -> None:
    example = CHANGES[key]
    headers = {} if tags is None else {"If_Match": tags}
    answer = Api(world).call(example.method, real(world, example.path), example.body, **headers)
    assert answer.status_code == 428
    assert "If-Match" in answer.json()["detail"]


@pytest.mark.parametrize("key", GUARDED, ids=" ".join)
def test_change_of_an_old_revision_returns_the_current_one(world: World, key: tuple[str, str]) -> None:
    api, example = Api(world), CHANGES[key]
    path = real(world, example.path)
    answer = api.call(example.method, path, example.body, If_Match='W/"99"')
    current = api.get(path)
    assert answer.status_code == 412
    assert answer["ETag"] == current["ETag"]
    assert answer.json()["current"] == current.json()


def test_each_change_has_its_own_etag(api: Api) -> None:
    first = api.get("regions/here")
    changed = api.change("PATCH", "regions/here", {"name": "One"})
    assert changed["ETag"] != first["ETag"]
    assert api.get("regions/here")["ETag"] == changed["ETag"]
    assert api.call("PATCH", "regions/here", {"name": "Two"}, If_Match=first["ETag"]).status_code == 412


def test_change_without_effect_keeps_the_etag(api: Api) -> None:
    before = api.get("engines/e-a")
    assert api.change("PATCH", "engines/e-a", {"speed": before.json()["speed"]})["ETag"] == before["ETag"]


def test_response_can_be_sent_back(api: Api) -> None:
    for path in ("engines/e-a", "pools/pool-a", "regions/here", "tenants/acme", "policies/policy-a"):
        shown = api.get(path).json()
        assert api.change("PUT", path, shown).json() == shown


def test_read_only_fields_are_reported(api: Api) -> None:
    answer = api.change("PATCH", "engines/e-a", {"engine_id": "other", "desired_state": "draining"})
    assert answer.status_code == 400
    assert [error["path"] for error in answer.json()["errors"]] == ["engine_id", "desired_state"]


def test_state_change_may_be_conditional(api: Api) -> None:
    assert api.post("engines/e-a/state", {"state": "draining"}, If_Match='W/"7"').status_code == 412
    assert api.post("engines/e-a/state", {"state": "draining"}, If_Match='W/"1"').json()["revision"] == 2


class Editor:
    """Reads a number in a name and writes the next one, unless another editor was faster."""

    def __init__(self, world: World) -> None:
        self.api = Api(world)
        self.seen: Any = None
        self.written = self.rejected = 0

    def step(self) -> None:
        if self.seen is None:
            self.seen = self.api.get("regions/here")
            return
        name = str(int(self.seen.json()["name"]) + 1)
        answer = self.api.call("PATCH", "regions/here", {"name": name}, If_Match=self.seen["ETag"])
        assert answer.status_code in (200, 412)
        self.written += answer.status_code == 200
        self.rejected += answer.status_code == 412
        self.seen = None


def test_200_interleavings_of_two_editors_lose_no_update(world: World) -> None:
    Region.objects.update(name="0")
    chance, editors = random.Random(18), [Editor(world), Editor(world)]
    while sum(editor.written + editor.rejected for editor in editors) < 200:
        chance.choice(editors).step()
    assert Region.objects.get().name == str(sum(editor.written for editor in editors))
    assert all(editor.written > 20 and editor.rejected > 20 for editor in editors)


def test_engine_of_an_old_revision_is_not_deleted(api: Api) -> None:
    etag = api.get("engines/e-a")["ETag"]
    assert api.post("engines/e-a/state", {"state": "maintenance"}).status_code == 200
    assert api.call("DELETE", "engines/e-a", If_Match=etag).status_code == 412
    assert Engine.objects.filter(engine_id="e-a").exists()
