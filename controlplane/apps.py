"""Registers the control plane with Django."""

from __future__ import annotations

from typing import Any

from django.apps import AppConfig
from django.db import connections
from django.db.models.signals import pre_migrate
from typing_extensions import override


class ControlPlaneConfig(AppConfig):
    """The Django app of the control plane: topology, policies, API keys, and jobs."""

    name = "controlplane"
    verbose_name = "Headway control plane"

    @override
    def ready(self) -> None:
        """Register checks of settings and the preparation of migrations, and connect the features."""
        from controlplane.project import checks  # noqa: F401
        from controlplane.project.wiring import connect

        connect()
        pre_migrate.connect(_prepare, sender=self)


def _prepare(*, using: str, **_kwargs: Any) -> None:
    """Before a migration, reject an unusable database. Remove the statement timeout, but limit waits for locks."""
    from controlplane.project.unusable_database import reject

    reject()
    connection = connections[using]
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            cursor.execute("SET statement_timeout = 0")
