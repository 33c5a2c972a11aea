"""Three regions with engines, two tenants, and rules."""

from __future__ import annotations

from controlplane.fleet import topology
from controlplane.fleet.models.engine import Engine
from controlplane.fleet.sovereignty.rules import replace_sovereignty, stored_sovereignty
from controlplane.platform.actor import program
from controlplane.policies.models.policy import Policy

ACTOR = program("test")
RULES = [
    {
        "name": "clinic stays",
        "tenants": ["clinic"],
        "from_regions": ["eu"],
        "to_regions": [],
        "allow": False,
        "note": "Contract of 2026, §4",
    },
    {"name": "into the EU", "tenants": [], "from_regions": [], "to_regions": ["eu"], "allow": True, "note": ""},
]


def some_regions() -> None:
    """Store three regions: us with two engines, the others with one."""
    for tenant in ("acme", "clinic"):
        topology.create_tenant(tenant, tenant, actor=ACTOR)
    policy = Policy.objects.create(slug="p-regions", name="P")
    for region, count in (("us", 2), ("eu", 1), ("asia", 1)):
        stored = topology.create_region(region, region.upper(), actor=ACTOR)
        pool = topology.create_pool(f"chat-{region}", f"chat {region}", stored, "m", policy, actor=ACTOR)
        for number in range(count):
            url = f"http://{region}-{number}:8000"
            Engine.objects.create(
                pool=pool, name=f"{region}-{number}", engine_id=f"{region}-{number}", url=url, connect_url=url
            )


def put_in_force(default: str = "deny") -> None:
    """Publish RULES."""
    replace_sovereignty(stored_sovereignty(), {"default": default, "rules": RULES}, actor=ACTOR)
