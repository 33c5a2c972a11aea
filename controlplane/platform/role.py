"""Permissions of a person or an API key; grants and keys define where they apply."""

from __future__ import annotations

from django.db import models

ALL_POOLS = "*"
"""Denotes all pools where pools are named, those created later included."""


class Role(models.TextChoices):
    """A person's role; each role includes the permissions of the ones before it."""

    VIEWER = "viewer", "Views everything in scope, changes nothing"
    OPERATOR = "operator", "Also manages engines and policies"
    ADMIN = "admin", "Also manages people, tenants, keys, regions and pools"
