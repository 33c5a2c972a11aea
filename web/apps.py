"""The console as a Django app."""

from __future__ import annotations

from django.apps import AppConfig
from typing_extensions import override


class WebConfig(AppConfig):
    """The operators' pages and their live feed."""

    name = "web"
    verbose_name = "Console"

    @override
    def ready(self) -> None:
        """Subscribe to sign-ins and sign-outs."""
        from web.access import session_record

        session_record.listen()
