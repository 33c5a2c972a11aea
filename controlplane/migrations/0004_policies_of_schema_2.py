"""Record in the audit log which rules serve instead of those that live policies can no longer name (decision 70).

Documents stay as written: they are upgraded when they are read.
"""

from typing import Any

from django.db import migrations
from django.utils import timezone

SERVES = {
    ("placement", "random"): "round_robin",
    ("placement", "power_of_two"): "least_loaded",
    ("placement", "cache_affinity"): "consistent_hash",
    ("placement", "min_ttft"): "mooncake",
    ("advisories", "sticky"): "gated",
}


def record_replacements(apps: Any, _schema_editor: Any) -> None:
    """Add one event for each policy whose live version or newer draft names such a rule."""
    now = timezone.now()
    events = apps.get_model("controlplane", "AuditEvent").objects
    for policy in apps.get_model("controlplane", "Policy").objects.select_related("live_version").order_by("slug"):
        live = policy.live_version.number if policy.live_version else 0
        versions = apps.get_model("controlplane", "PolicyVersion").objects.filter(policy=policy, number__gte=live)
        for version in versions.order_by("number"):
            document = version.routing_document
            named = {"placement": (document.get("placement") or {}).get("name"), "advisories": document.get("advisories")}
            replaced = {path: SERVES[path, name] for path, name in named.items() if (path, name) in SERVES}
            if replaced:
                events.create(
                    at=now,
                    actor_name="upgrade",
                    via="program",
                    verb="policy.upgrade",
                    object_kind="policy",
                    object_id=policy.slug,
                    before={"number": version.number, **{path: named[path] for path in replaced}},
                    after={"number": version.number, **replaced},
                    why="The rule is for simulation and what-if only; the nearest live one serves",
                )


class Migration(migrations.Migration):
    """Adds audit events only."""

    dependencies = [("controlplane", "0003_engine_cost_per_hour")]

    operations = [migrations.RunPython(record_replacements, migrations.RunPython.noop)]
