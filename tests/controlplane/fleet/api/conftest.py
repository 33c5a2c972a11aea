"""Fixtures of the management API's tests."""

from __future__ import annotations

from tests.controlplane.platform.api.conftest import api, shared_world, world

__all__ = ["api", "shared_world", "world"]
