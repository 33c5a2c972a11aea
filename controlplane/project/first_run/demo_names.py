"""Names of the demo's objects. Needs no Django."""

from __future__ import annotations

from types import MappingProxyType

TENANT, TENANT_PARTS = "demo", 6
"""Tenant of the first API key, and its parts of the demo's sessions."""
MORE_TENANTS = MappingProxyType({"acme": 3, "lumen": 1})
"""The other tenants with traffic, and their parts."""
POOL = "demo"
SERVED_MODEL = "demo-8b"
API_KEY_VARIABLE = "HEADWAY_API_KEY"
"""Environment variable from which simulator.replay reads its API key."""
