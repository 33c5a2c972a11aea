"""The capacity plan: the sum of regional peaks against the shared peak, costs, and the certainty of the saving."""

from __future__ import annotations

import math
import time
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from controlplane.capacity.saving import (
    DAYS,
    MAX_DAYS,
    ON_DEMAND_PER_H,
    RESERVED_PER_H,
    UTILIZATION,
    InstallationPlan,
    Prices,
    installation_plan,
    range_words,
)
from web.capacity.demand_picture import demand_picture
from web.shell.console_request import asked
from web.shell.form_field import FormField
from web.shell.frame import shell_context
from web.shell.no_role import needs_all_pools

PAGE = "Capacity"


_FIELDS = (
    ("days", "Log window (days)", DAYS, MAX_DAYS, ""),
    ("reserved", "Reserved ($/h)", RESERVED_PER_H, 1e6, "per engine"),
    ("on_demand", "On demand ($/h)", ON_DEMAND_PER_H, 1e6, "per engine"),
    ("utilization", "Peak utilization", UTILIZATION, 1.0, "share, 0 to 1"),
)


@require_safe
@needs_all_pools(PAGE, "A capacity plan covers all pools. Viewing it")
def capacity(request: HttpRequest) -> HttpResponse:
    """Show the plan to people who have a role in all pools."""
    fields = [_field(request, *item) for item in _FIELDS]
    wrong = any(field.error for field in fields)
    plan = None
    if not wrong:
        days, reserved, on_demand, utilization = (float(field.value) for field in fields)
        plan = installation_plan(time.time(), Prices(reserved, on_demand, utilization, days))
    context = shell_context(
        request, page=PAGE, fields=fields, wrong=wrong, **(_plan(plan, utilization) if plan else {})
    )
    return render(request, "capacity/page.html", context, status=422 if wrong else 200)


def _field(request: HttpRequest, name: str, label: str, default: float, most: float, hint: str) -> FormField:
    text = asked(request, name, 20) or f"{default:g}"
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    error = "" if 0 < value <= most else f"Enter a number above 0, at most {most:,.0f}."
    return FormField(name, label, help=hint, chosen=(text,), error=error)


def _plan(installation: InstallationPlan, utilization: float) -> dict[str, Any]:
    plan = installation.plan
    return {
        "plan": plan,
        "saving": f"{100 * plan.saving:.1f}%",
        "range": range_words(plan.range),
        "caveat": installation.caveat,
        "picture": demand_picture(installation, utilization),
        "present": sum(installation.present.values()),
        "requests": installation.demand.requests,
        "hours": f"{installation.span_s / 3600:.1f}",
        "rows": [(region, installation.present.get(region, 0), peak) for region, peak in plan.regions.items()],
        "costs": [
            ("Reserved for own peaks", plan.own_cost, ""),
            ("Reserved for the shared peak", plan.shared_cost, ""),
            ("Cheapest mix", plan.mixed_cost, f"{plan.mixed_reserved:.1f} reserved, the rest on demand"),
            ("On demand, perfect scaling", plan.on_demand_cost, "no delay, always available"),
        ],
    }
