"""What a person or an API key may do; grants and keys define where."""

from __future__ import annotations

from django.db import models

ALL_POOLS = "*"
"""Denotes all pools where pools are named, those created later included."""


class Role(models.TextChoices):
    """What a person may do; each role may do what the ones before it may."""

    VIEWER = "viewer", "Views everything in scope, changes nothing"
    OPERATOR = "operator", "Also manages engines and policies"
    ADMIN = "admin", "Also manages people, tenants, keys, regions and pools"
