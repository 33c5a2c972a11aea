"""The console as a Django app."""

from __future__ import annotations

from django.apps import AppConfig


class WebConfig(AppConfig):
    """Operators' pages and their live feed."""

    name = "web"
    verbose_name = "Console"
