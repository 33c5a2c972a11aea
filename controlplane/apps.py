"""Registers the control plane with Django."""

from __future__ import annotations

from django.apps import AppConfig
from typing_extensions import override


class ControlPlaneConfig(AppConfig):
    """Topology, policies, API keys and jobs."""

    name = "controlplane"
    verbose_name = "Switchyard control plane"

    @override
    def ready(self) -> None:
        """Register the checks that refuse an unsafe mix of settings."""
        from controlplane import checks  # noqa: F401
