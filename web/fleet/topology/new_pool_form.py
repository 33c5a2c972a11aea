"""The drawer in which an admin creates a pool, with a new region or policy if needed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from controlplane.fleet.models.pool import Pool
from controlplane.fleet.models.region import Region
from controlplane.platform.field_problems import FieldProblem
from controlplane.platform.resource.declared_field import settable_fields
from controlplane.policies.models.policy import Policy
from web.shell.form_field import FieldOption, FormField, filled, general_problem
from web.shell.resource_form import form_fields

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
    options = {"region": [*regions, _NEW_OPTION], "policy": [*policies, _NEW_OPTION]}
    created = {field.name: field for field in form_fields(settable_fields(Pool, creating=True), options=options)}
    return [
        *(created[name] for name in ("slug", "name", "served_model", "key_source", "region")),
        FormField("new_region", "New region", help="ID of a new region.", limit=64),
        created["policy"],
        FormField("new_policy", "New policy", help="ID of a new policy; its first version has the defaults.", limit=64),
        FormField("why", "Why", help="Optional; for the audit."),
    ]
