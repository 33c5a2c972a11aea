"""The Services page: names for clients, their pools in order, and what their providers answered and cost."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from django.db.models import Sum
from django.views.decorators.http import require_http_methods

from controlplane.fleet.models.model_service import ProviderUsage
from controlplane.fleet.resources import SERVICES
from web.shell.frame import ITEMS
from web.shell.no_role import needs_all_pools
from web.shell.object_pages import ObjectPages

PAGE = "Engines"
COST_DAYS = 30
SAID = {
    "created": "Service added; gateways serve it within a second.",
    "changed": "Service changed; gateways apply it within a second.",
    "deleted": "Service deleted.",
}
all_pools_only = needs_all_pools(PAGE, "Services can name any pool. Viewing them")


def _with_costs(rows: Any) -> list[Any]:
    costs = usage(datetime.now(UTC) - timedelta(days=COST_DAYS))
    return [(row, costs.get(row.slug)) for row in rows]


def usage(since: datetime) -> dict[str, dict[str, Any]]:
    """Return the answers and dollars of each service's provider since that day."""
    days = ProviderUsage.objects.filter(day__gte=since.date()).values("service")
    return {row["service"]: row for row in days.annotate(answers=Sum("requests"), dollars=Sum("cost")).order_by()}


PAGES = ObjectPages(
    SERVICES,
    "service",
    PAGE,
    "/engines/services",
    "fleet/services.html",
    lambda _actor: next(item.tabs for item in ITEMS if item.name == PAGE),
    "services",
    SAID,
    _with_costs,
    named="service",
)
services = require_http_methods(["GET", "HEAD", "POST"])(all_pools_only(PAGES.view))
