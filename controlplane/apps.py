"""Registers the control plane with Django."""

from __future__ import annotations

from typing import Any

from django.apps import AppConfig
from django.db import connections
from django.db.models.signals import pre_migrate
from typing_extensions import override


class ControlPlaneConfig(AppConfig):
    """Topology, policies, API keys and jobs."""

    name = "controlplane"
    verbose_name = "Switchyard control plane"

    @override
    def ready(self) -> None:
        """Register the checks that refuse an unsafe mix of settings."""
        from controlplane import checks  # noqa: F401

        pre_migrate.connect(_give_time, sender=self)


def _give_time(*, using: str, **_kwargs: Any) -> None:
    """Let the statements of migrations take as long as their tables need; locks are waited for no longer than ever."""
    connection = connections[using]
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("SET statement_timeout = 0")
