"""`/api/v1/policies`: the policies, and the schema and check of their documents."""

from __future__ import annotations

import msgspec
from drf_spectacular.types import OpenApiTypes
from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.platform.api.listing import Listing, contains, exact
from controlplane.platform.api.views import ApiView, Changeable, Creatable, Deletable, by_method
from controlplane.policies.api.policy_shape import CheckedDocument, NewPolicy, PolicyChange, PolicyDocument, PolicyShape
from controlplane.policies.document.problems import InvalidPolicyError, validated
from controlplane.policies.document.whole_policy import WholePolicy
from controlplane.policies.resources import POLICIES


class Policies(Creatable):
    """List policies, or create one."""

    resource = POLICIES
    shape = PolicyShape
    says = by_method(GET="List policies.", POST="Create a policy without versions.")
    bodies = by_method(POST=NewPolicy)
    listing = Listing(
        {"slug": ("slug",)},
        "slug",
        {
            "pool": exact("pools__slug", "Slug of a pool that follows it."),
            "name": contains("name", "Part of the name."),
        },
    )


class OnePolicy(Changeable, Deletable):
    """One policy."""

    resource = POLICIES
    shape = PolicyShape
    bodies = by_method(PUT=PolicyChange, PATCH=PolicyChange)


class PolicySchema(ApiView):
    """The schema of the policy document."""

    noun = "policies"
    answers = by_method(GET=(200, OpenApiTypes.OBJECT))

    def get(self, request: Request) -> Response:
        """Return the JSON schema of the policy document, with the unit, range, and description of each field."""
        return Response(msgspec.json.schema(WholePolicy))


class PolicyCheck(ApiView):
    """The check of a policy document."""

    noun = "policies"
    bodies = by_method(POST=PolicyDocument)
    answers = by_method(POST=(200, CheckedDocument))
    only_asks = True

    def post(self, request: Request) -> Response:
        """Report every problem of a document. Nothing is stored."""
        try:
            policy = validated(self.body()["document"])
        except InvalidPolicyError as error:
            errors = [{"path": item.path, "message": item.message} for item in error.field_problems]
            return Response({"valid": False, "errors": errors, "document": None})
        return Response({"valid": True, "errors": [], "document": msgspec.to_builtins(policy)})
