"""The drawer in which an admin creates a pool, with a new region or policy if needed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from controlplane.fleet.models.pool import KeySource
from controlplane.fleet.models.region import Region
from controlplane.platform.field_problems import FieldProblem
from controlplane.policies.models.policy import Policy
from web.shell.form_field import SELECT, FieldOption, FormField, filled, general_problem

NEW = ""
_NEW_OPTION = FieldOption(NEW, "New: named below")


def new_pool_drawer(
    typed: Mapping[str, Sequence[str]] | None = None, problems: Iterable[FieldProblem] = ()
) -> dict[str, Any]:
    """Return the drawer's content: the form, its typed values, and their problems."""
    problems = list(problems)
    fields = filled(_fields(), typed or {}, problems)
    return {"kind": "new-pool", "fields": fields, "problem": general_problem(fields, problems)}


def _fields() -> list[FormField]:
    regions = [FieldOption(region.slug, region.name) for region in Region.objects.all()]
    policies = [
        FieldOption(policy.slug, policy.name)
        for policy in Policy.objects.filter(live_version__isnull=False).order_by("slug")
    ]
    return [
        FormField("slug", "ID", help="Letters, digits, - and _; it never changes.", required=True, limit=64),
        FormField("name", "Name", required=True, limit=120),
        FormField("served_model", "Served model", help="As engines name it.", required=True),
        _select("key_source", "Block keys", [FieldOption(value, label) for value, label in KeySource.choices]),
        _select("region", "Region", [*regions, _NEW_OPTION]),
        FormField("new_region", "New region", help="ID of a new region.", limit=64),
        _select("policy", "Policy", [*policies, _NEW_OPTION]),
        FormField("new_policy", "New policy", help="ID of a new policy; its first version has the defaults.", limit=64),
        FormField("why", "Why", help="Optional; for the audit."),
    ]


def _select(name: str, label: str, options: Sequence[FieldOption]) -> FormField:
    return FormField(name, label, SELECT, options=tuple(options), chosen=(options[0].value,))
