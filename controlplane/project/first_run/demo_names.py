"""Names of the demo's objects. Needs no Django."""

from __future__ import annotations

TENANT = "demo"
POOL = "demo"
SERVED_MODEL = "demo-8b"
API_KEY_VARIABLE = "HEADWAY_API_KEY"
"""Environment variable from which simulator.replay reads its API key."""
