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
    verbose_name = "Headway control plane"

    @override
    def ready(self) -> None:
        """Register checks of settings and what precedes every migration; connect the features."""
        from controlplane.project import checks  # noqa: F401
        from controlplane.project.wiring import connect

        connect()
        pre_migrate.connect(_prepare, sender=self)


def _prepare(*, using: str, **_kwargs: Any) -> None:
    """Reject a pre-release database; let statements run as long as their tables need, but limit waits for locks."""
    from controlplane.project.pre_release import reject

    reject()
    connection = connections[using]
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("SET statement_timeout = 0")
