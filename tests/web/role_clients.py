"""Signed-in clients of people with different roles."""

from __future__ import annotations

from django.contrib.auth.models import User
from django.test import Client

from controlplane.access.models.role_grant import RoleGrant
from controlplane.fleet.models.pool import Pool
from controlplane.fleet.models.region import Region
from controlplane.platform.role import Role
from controlplane.policies.models.policy import Policy

ROLES = ("nobody", "pool_viewer", "pool_operator", "viewer", "operator", "admin", "superuser")


def make_pool(slug: str = "chat") -> Pool:
    """Return a pool with its own region and policy."""
    region, _ = Region.objects.get_or_create(slug=f"{slug}-region", defaults={"name": slug})
    policy, _ = Policy.objects.get_or_create(slug=f"{slug}-policy", defaults={"name": slug})
    pool, _ = Pool.objects.get_or_create(
        slug=slug, defaults={"name": slug, "region": region, "served_model": "m-8b", "policy": policy}
    )
    return pool


def make_person(role: str, pool: Pool | None = None) -> User:
    """Return a person with one of ROLES and the same name. Pool roles require the pool."""
    user = User.objects.create(username=role, is_superuser=role == "superuser")
    if role.startswith("pool_"):
        RoleGrant.objects.create(user=user, role=Role(role.removeprefix("pool_")), pool=pool)
    elif role in Role.values:
        RoleGrant.objects.create(user=user, role=Role(role))
    return user


def client_of(user: User, *, check_forgery: bool = False) -> Client:
    """Return a client in which the person is signed in."""
    client = Client(enforce_csrf_checks=check_forgery)
    client.force_login(user)
    return client
