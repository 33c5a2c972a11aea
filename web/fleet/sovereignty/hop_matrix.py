"""Tenant × region of arrival against destination: what rules allow, and what another document changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from routing.regions.sovereignty import SovereigntyDocument

MAX_ROWS = 200
OTHERS = ""
"""Stands for all tenants that no rule names."""


@dataclass(frozen=True, slots=True)
class HopCell:
    """One hop; `same` is the diagonal."""

    allowed: bool
    rule: str
    same: bool = False
    changed: bool = False


@dataclass(frozen=True, slots=True)
class HopRow:
    """What one tenant's requests may do that arrive in one region."""

    tenant: str
    origin: str
    cells: tuple[HopCell, ...]


def hop_matrix(document: SovereigntyDocument, in_force: SovereigntyDocument, regions: Sequence[str]) -> list[HopRow]:
    """Return at most MAX_ROWS rows; tenants are those that either document names, and all others together."""
    tenants = (*dict.fromkeys((*document.tenants, *in_force.tenants)), OTHERS)
    rows = [
        HopRow(tenant, origin, tuple(_cell(document, in_force, tenant, origin, region) for region in regions))
        for tenant in tenants
        for origin in regions
    ]
    return rows[:MAX_ROWS]


def _cell(
    document: SovereigntyDocument, in_force: SovereigntyDocument, tenant: str, origin: str, destination: str
) -> HopCell:
    now, then = document.verdict(tenant, origin, destination), in_force.verdict(tenant, origin, destination)
    return HopCell(now.allowed, now.rule, origin == destination, now.allowed != then.allowed)
