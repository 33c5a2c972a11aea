"""Permissions of a person or an API key. Grants and keys define the pools to which they apply."""

from __future__ import annotations

from django.db import models

ALL_POOLS = "*"
"""Means all pools, including pools created later, in a list of pools."""


class Role(models.TextChoices):
    """A person's role. Each role includes the permissions of the previous ones."""

    VIEWER = "viewer", "Views everything in scope, changes nothing"
    OPERATOR = "operator", "Also manages engines and policies"
    ADMIN = "admin", "Also manages people, tenants, keys, regions and pools"
