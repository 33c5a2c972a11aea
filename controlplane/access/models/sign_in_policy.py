"""Whom the installation requires a second factor from."""

from __future__ import annotations

from django.db import models
from typing_extensions import override

from controlplane.platform.revisions import RevisedModel


class FactorRule(models.TextChoices):
    """Who must have a second factor to sign in with a password."""

    OFF = "off", "No one"
    ADMINS = "admins", "Admins"
    EVERYONE = "everyone", "Everyone"


class SignInPolicy(RevisedModel):
    """The only row. Without it, no second factor is required."""

    ONLY = 1
    public_id_field = "name"
    name = "policy"

    id = models.PositiveSmallIntegerField(primary_key=True, default=ONLY)
    second_factor = models.CharField(max_length=8, choices=FactorRule.choices, default=FactorRule.OFF)

    class Meta:
        constraints = (models.CheckConstraint(condition=models.Q(id=1), name="sign_in_policy_one_row"),)

    @override
    def __str__(self) -> str:
        return "sign-in policy"
