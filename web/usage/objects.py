"""The Budgets and Prices pages."""

from __future__ import annotations

from django.utils import timezone
from django.views.decorators.http import require_http_methods

from controlplane.fleet.models.pool import Pool
from controlplane.platform.models.api_key import ApiKey
from controlplane.platform.models.tenant import Tenant
from controlplane.usage.budgets import BUDGETS, PRICES
from controlplane.usage.summary import budget_uses
from web.shell.form_field import FieldOption
from web.shell.no_role import needs_all_pools
from web.shell.object_pages import ObjectPages, Options
from web.usage.page import PAGE, tabs

SAID = {
    "created": "Added; gateways apply it within seconds.",
    "changed": "Changed; gateways apply it within seconds.",
    "deleted": "Deleted.",
}
all_pools_only = needs_all_pools(PAGE, "Budgets and prices apply to the whole fleet. Viewing them")


def _options() -> Options:
    keys = ApiKey.objects.filter(revoked_at=None).select_related("tenant")[:500]
    served = Pool.objects.order_by("served_model").values_list("served_model", flat=True).distinct()[:500]
    return {
        "tenant": [FieldOption(item.slug, f"{item.slug}, {item.name}") for item in Tenant.objects.all()[:500]],
        "key_id": [
            FieldOption("", "all its keys"),
            *(FieldOption(k.key_id, f"{k.tenant.slug}: {k.name}") for k in keys),
        ],
        "model": [FieldOption(name, name) for name in served],
    }


BUDGET_PAGES = ObjectPages(
    BUDGETS,
    "budget",
    PAGE,
    "/usage/budgets",
    "usage/budgets.html",
    tabs,
    "budgets",
    SAID,
    lambda rows: budget_uses(rows, timezone.now()),
    options=_options,
)
PRICE_PAGES = ObjectPages(
    PRICES,
    "price",
    PAGE,
    "/usage/prices",
    "usage/prices.html",
    tabs,
    "prices",
    SAID,
    blanks={"Cached prompt price": "as prompt"},
    options=_options,
)
budgets = require_http_methods(["GET", "HEAD", "POST"])(all_pools_only(BUDGET_PAGES.view))
prices = require_http_methods(["GET", "HEAD", "POST"])(all_pools_only(PRICE_PAGES.view))
