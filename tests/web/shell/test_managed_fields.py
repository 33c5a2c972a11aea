"""Forms state which files manage a field."""

from __future__ import annotations

import re

import pytest

from controlplane.platform.models.tenant import Tenant
from tests.controlplane.conftest import bus
from tests.controlplane.platform.api.conftest import shared_world
from tests.controlplane.platform.api.conftest import world as bare_world
from tests.controlplane.platform.api.world import Api, World

__all__ = ["bare_world", "bus", "shared_world"]

pytestmark = pytest.mark.django_db
MANAGED = "Managed by files: apply (key admin_key, fleet.yaml:3). A change here conflicts with their next apply."


@pytest.fixture(name="world")
def managed_world(bare_world: World) -> World:
    """Return the world after an apply of files that set some of its fields."""
    files = [
        ("Pool", {"name": "pool-a"}, {"weight": 50}),
        ("Engine", {"pool": "pool-a", "name": "e-a"}, {"speed": 2.0}),
        ("Tenant", {"name": "acme"}, {"name": "Acme Inc."}),
        ("ApiKey", {"tenant": "acme", "name": "traffic_key"}, {"rate_per_min": 60}),
        ("Policy", {"name": "policy-a"}, {"document": {"ttft_slo_s": 3.0}}),
    ]
    head = {"apiVersion": "headway/v1", "source": "fleet.yaml:3"}
    objects = [{**head, "kind": kind, "metadata": metadata, "spec": spec} for kind, metadata, spec in files]
    assert Api(bare_world, "admin_key").post("manifests/apply", {"objects": objects}).status_code == 200
    return bare_world


@pytest.mark.parametrize(
    ("address", "fields"),
    [
        ("/engines?settings=pool-a", ["weight"]),
        ("/engines?engine=e-a&do=change", ["name", "speed"]),
        ("/access/tenants?tenant=acme", ["name"]),
        ("/access/keys?key={traffic_key}", ["name", "rate_per_min"]),
    ],
)
def test_each_managed_field_names_its_files(world: World, address: str, fields: list[str]) -> None:
    keys = {name: key.key_id for name, key in world.keys.items()}
    page = " ".join(Api(world).get(address.format(**keys)).content.decode().split())
    controls = re.findall(r'(?:id="field-|name=")(\w+)"|(Managed by files: [^<]+?) <', page)
    managed = [controls[number - 1][0] for number, (_, note) in enumerate(controls) if note]
    assert (managed, page.count(MANAGED)) == (fields, len(fields))


def test_the_policy_editor_lists_the_settings_that_files_manage(world: World) -> None:
    page = " ".join(Api(world).get("/policies/policy-a").content.decode().split())
    assert "<code>document.ttft_slo_s</code> by apply (key admin_key, fleet.yaml:3). Other values" in page


def test_a_form_of_an_object_without_files_has_no_note(world: World) -> None:
    Tenant.objects.create(slug="free", name="Free")
    assert "Managed by files" not in Api(world).get("/access/tenants?tenant=free").content.decode()
