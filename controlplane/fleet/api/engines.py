"""`/api/v1/engines`."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from typing_extensions import override

from controlplane.fleet.engine_bulk import change_many
from controlplane.fleet.engine_lifecycle import set_desired_state
from controlplane.fleet.models.engine import BY_HAND, DesiredState, Engine, EngineRole
from controlplane.fleet.resources import ENGINES
from controlplane.fleet.visibility import named_pool
from controlplane.platform.api.listing import Listing, contains, exact, one_of, truth
from controlplane.platform.api.resource_bodies import ResourceShape, change_body, input_fields, new_body
from controlplane.platform.api.strict_fields import ChangeBody, Text, Truth
from controlplane.platform.api.views import (
    ApiView,
    Changeable,
    Creatable,
    Deletable,
    Objects,
    Verb,
    by_method,
    taken_why,
)

CHOICES_BY_HAND = [(state.value, state.label) for state in BY_HAND]


class EngineShape(ResourceShape):
    """One vLLM or SGLang server process."""

    class Meta:
        model = Engine


EngineChange = change_body(Engine)


class StateChange(ChangeBody):
    """Desired state of an engine."""

    state = serializers.ChoiceField(choices=CHOICES_BY_HAND)


class BulkOperation(serializers.Serializer):
    """One of several operations: register (pool, name, url, …), state (engine_id, state), or delete (engine_id)."""

    op = serializers.ChoiceField(choices=("register", "state", "delete"))
    engine_id = Text(max_length=64, required=False, help_text="For state and delete.")
    state = serializers.ChoiceField(choices=CHOICES_BY_HAND, required=False, help_text="For state.")
    pool = Text(max_length=64, required=False, help_text="For register, like all further fields.")

    @override
    def get_fields(self) -> dict[str, serializers.Field]:
        """Add the fields of an engine."""
        return {**super().get_fields(), **input_fields(Engine, optional=True)}


class BulkChange(ChangeBody):
    """Operations on several engines, applied atomically."""

    dry_run = Truth(default=False, help_text="Dry run: report the effects without applying them.")
    operations = serializers.ListField(child=BulkOperation(), min_length=1, max_length=200)


class BulkResult(serializers.Serializer):
    """The effect of one operation, or its expected effect."""

    op = serializers.CharField()
    before = EngineShape(allow_null=True)
    after = EngineShape(allow_null=True)


class BulkAnswer(serializers.Serializer):
    """The effects of the operations, or their expected effects."""

    dry_run = serializers.BooleanField()
    results = BulkResult(many=True)


class _Engines(Objects):
    resource = ENGINES
    shape = EngineShape


class Engines(_Engines, Creatable):
    """List engines, or register one."""

    says = by_method(GET="List engines.", POST="Register an engine.")

    bodies = by_method(POST=new_body(Engine, pool=Text(max_length=64, help_text="Slug of its pool.")))
    listing = Listing(
        {
            "name": ("pool__slug", "name"),
            "registered_at": ("registered_at", "engine_id"),
            "engine_id": ("engine_id",),
        },
        "name",
        {
            "pool": exact("pool__slug", "Slug of the pool."),
            "region": exact("pool__region__slug", "Slug of the region."),
            "desired_state": one_of("desired_state", DesiredState.values, "Desired state."),
            "role": one_of("role", EngineRole.values, "Role."),
            "supervised": truth("supervised", "Whether Headway starts and stops its process."),
            "name": contains("name", "Part of the name."),
            "url": contains("url", "Part of the address."),
        },
    )

    @override
    def body(self, current: Any = None) -> dict[str, Any]:
        """Return the validated body with the pool that it names."""
        values = super().body(current)
        return values | {"pool": named_pool(self.actor, values["pool"])}


class OneEngine(_Engines, Changeable, Deletable):
    """One engine."""

    bodies = by_method(PUT=EngineChange, PATCH=EngineChange)


class EngineState(_Engines, Verb):
    """Set the desired state. If-Match is optional."""

    verb = staticmethod(set_desired_state)
    bodies = by_method(POST=StateChange)


class EngineBulk(ApiView):
    """Change several engines atomically."""

    noun = "engines"
    shape = EngineShape
    bodies = by_method(POST=BulkChange)
    answers = by_method(POST=(200, BulkAnswer))

    def post(self, request: Request) -> Response:
        """Apply all operations or none. With dry_run, only report the effects."""
        body = self.body()
        outcomes = change_many(body["operations"], actor=self.actor, dry_run=body["dry_run"], why=taken_why(body))
        return Response(BulkAnswer({"dry_run": body["dry_run"], "results": outcomes}).data)
