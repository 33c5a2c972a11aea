"""`manage.py create_api_key`: the pools in which the scope manage applies."""

from __future__ import annotations

import io

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

from controlplane.fleet.models.pool import Pool
from controlplane.platform.models.api_key import ApiKey
from controlplane.platform.models.tenant import Tenant
from gateway.bus.bus import Bus

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("bus", "tenant")]


def made(*options: str) -> tuple[list[str], str]:
    """Return the pools of a new key, and the other output of the command."""
    call_command("create_api_key", *options, stdout=io.StringIO(), stderr=(said := io.StringIO()))
    return ApiKey.objects.get().pools, said.getvalue()


@pytest.mark.parametrize(
    ("options", "pools", "warns"),
    [
        (("--scopes", "manage"), [], True),
        (("--scopes", "infer"), [], False),
        (("--scopes", "manage", "--role", "admin"), [], False),
        (("--scopes", "manage", "--all-pools"), ["*"], False),
        (("--scopes", "manage", "--pools", "chat"), ["chat"], False),
    ],
)
def test_manage_scope_applies_to_the_pools_of_the_options(
    pool: Pool, options: tuple[str, ...], pools: list[str], warns: bool
) -> None:
    stored, said = made(*options)
    assert (stored, "covers no pool" in said) == (pools, warns)


def test_unknown_pool_creates_no_key(bus: Bus, tenant: Tenant) -> None:
    with pytest.raises(CommandError):
        made("--scopes", "manage", "--pools", "nowhere")
    assert not ApiKey.objects.exists()
