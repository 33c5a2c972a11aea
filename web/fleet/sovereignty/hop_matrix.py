"""The matrix of tenant and arrival region against destination: what rules allow, and what a draft would change."""

from __future__ import annotations

from collections.abc import Sequence

from routing.regions.sovereignty import SovereigntyDocument, SovereigntyVerdict

MAX_ROWS = 200
OTHERS = ""
"""Represents all tenants that no rule names."""


Hop = tuple[SovereigntyVerdict, bool, bool]
"""The verdict, whether the request stays in its region, and whether the verdict differs from the active rules."""


def hop_matrix(
    document: SovereigntyDocument, in_force: SovereigntyDocument, regions: Sequence[str]
) -> list[tuple[str, str, list[Hop]]]:
    """Return tenant, arrival region, and hops to all regions in at most MAX_ROWS rows.

    Tenants named in either document have rows; all other tenants share rows.
    """
    tenants = (*dict.fromkeys((*document.tenants, *in_force.tenants)), OTHERS)
    rows = [
        (tenant, origin, [_hop(document, in_force, tenant, origin, region) for region in regions])
        for tenant in tenants
        for origin in regions
    ]
    return rows[:MAX_ROWS]


def _hop(
    document: SovereigntyDocument, in_force: SovereigntyDocument, tenant: str, origin: str, destination: str
) -> Hop:
    now, then = document.verdict(tenant, origin, destination), in_force.verdict(tenant, origin, destination)
    return now, origin == destination, now.allowed != then.allowed
