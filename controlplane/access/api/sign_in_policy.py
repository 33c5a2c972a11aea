"""`/api/v1/sign_in_policy`."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers
from typing_extensions import override

from controlplane.access.models.sign_in_policy import FactorRule, SignInPolicy
from controlplane.access.second_factors import change_sign_in_policy, sign_in_policy
from controlplane.platform.api.resource_bodies import ResourceShape
from controlplane.platform.api.strict_fields import ChangeBody
from controlplane.platform.api.views import Changeable, by_method
from controlplane.platform.role import Role


class SignInPolicyShape(ResourceShape):
    """Who must have a second factor to sign in with a password."""

    class Meta:
        model = SignInPolicy


class SignInPolicyChange(ChangeBody):
    """The rule, in force from the next sign-in on."""

    second_factor = serializers.ChoiceField(choices=FactorRule.choices, default=FactorRule.OFF)


class SignInPolicyView(Changeable):
    """Who must have a second factor."""

    noun = "people"
    shape = SignInPolicyShape
    changed = staticmethod(change_sign_in_policy)
    bodies = by_method(PUT=SignInPolicyChange, PATCH=SignInPolicyChange)
    changes_need = Role.ADMIN
    whole_fleet = True

    @override
    def thing(self, *_args: Any, **_names: Any) -> SignInPolicy:
        """Return the only row."""
        return sign_in_policy()
