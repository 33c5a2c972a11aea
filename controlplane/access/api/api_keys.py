"""`/api/v1/keys`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.db.models import QuerySet
from django.utils import timezone
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from typing_extensions import override

from controlplane.access.api_keys import Revoked, change_api_key, create_api_key, revoke_at_once
from controlplane.platform.actor import Actor
from controlplane.platform.api.error_answers import answer_with
from controlplane.platform.api.listing import Listing, contains, exact, present
from controlplane.platform.api.problem import ProblemError
from controlplane.platform.api.strict_fields import ChangeBody, ModelShape, Named, Text, WholeNumber
from controlplane.platform.api.views import Changeable, Listed, Objects, Verb, by_method
from controlplane.platform.models.api_key import SCOPES, USUAL_SCOPES, ApiKey
from controlplane.platform.models.tenant import Tenant
from controlplane.platform.outage.unwritable import CANNOT_WRITE
from controlplane.platform.role import Role
from gateway.bus.bus import BusAwayError


class ApiKeyShape(ModelShape):
    """A credential that clients send with requests."""

    scopes = serializers.ListField(child=serializers.ChoiceField(choices=SCOPES), read_only=True)
    pools = serializers.ListField(child=serializers.CharField(), read_only=True)
    origins = serializers.ListField(child=serializers.CharField(), read_only=True)

    class Meta:
        model = ApiKey
        fields: tuple[str, ...] = (
            "key_id",
            "tenant",
            "name",
            "prefix",
            "scopes",
            "role",
            "pools",
            "rate_per_min",
            "max_in_flight",
            "slo_class",
            "priority_ceiling",
            "origins",
            "created_at",
            "expires_at",
            "last_used_at",
            "revoked_at",
            "revision",
        )


class CreatedApiKeyShape(ApiKeyShape):
    """A new key, including its text."""

    text = serializers.CharField(allow_null=True, help_text="The key, shown only once; null in a repeated response.")

    class Meta(ApiKeyShape.Meta):
        fields = (*ApiKeyShape.Meta.fields, "text")


class RevokedApiKeyShape(ApiKeyShape):
    """A revoked key."""

    stored = serializers.BooleanField(
        default=True,
        read_only=True,
        help_text="False: gateways reject the key, but the database is not writable.",
    )

    class Meta(ApiKeyShape.Meta):
        fields = (*ApiKeyShape.Meta.fields, "stored")


class ApiKeyChange(ChangeBody):
    """Writable fields of an API key."""

    name = Text(max_length=120)
    scopes = serializers.ListField(
        child=serializers.ChoiceField(choices=SCOPES), min_length=1, max_length=len(SCOPES), default=USUAL_SCOPES
    )
    role = serializers.ChoiceField(
        choices=Role.choices, default=Role.VIEWER, help_text="Role of the scope manage in the key's pools."
    )
    pools = serializers.ListField(
        child=Text(max_length=64),
        max_length=1000,
        default=list,
        help_text="Pools that the scope manage covers, or * alone: all. Empty: none. An admin's key covers all.",
    )
    expires_at = serializers.DateTimeField(allow_null=True, default=None)
    rate_per_min = WholeNumber(min_value=1, max_value=1_000_000, allow_null=True, default=None)
    max_in_flight = WholeNumber(min_value=1, max_value=100_000, allow_null=True, default=None)
    slo_class = Text(
        max_length=32,
        allow_blank=True,
        default="",
        help_text="Default SLO class of requests, in pools whose policy has it.",
    )
    priority_ceiling = WholeNumber(
        min_value=-(2**31),
        max_value=2**31 - 1,
        allow_null=True,
        default=None,
        help_text="Most urgent priority allowed; lower goes first. Null: any.",
    )
    origins = serializers.ListField(
        child=Text(max_length=210),
        max_length=32,
        default=list,
        help_text="Web origins whose pages may send advisories with this key's tokens.",
    )


class NewApiKey(ApiKeyChange):
    """Body of POST /keys."""

    tenant = Named(slug_field="slug", queryset=Tenant.objects.all(), help_text="Slug of its tenant.")


def _keys(_actor: Actor) -> QuerySet[ApiKey]:
    """Return all keys. An actor with permission to see one key may see all of them."""
    return ApiKey.objects.select_related("tenant")


class _Keys(Objects):
    noun = "keys"
    shape = ApiKeyShape
    rows = staticmethod(_keys)
    changes_need = Role.ADMIN
    whole_fleet = True
    has_etag = True


class ApiKeys(_Keys, Listed):
    """List API keys."""

    bodies = by_method(POST=NewApiKey)
    answers = by_method(POST=(201, CreatedApiKeyShape))
    shown_once = frozenset({"text"})
    listing = Listing(
        {"created_at": ("created_at", "key_id"), "tenant": ("tenant__slug", "key_id"), "key_id": ("key_id",)},
        "-created_at",
        {
            "tenant": exact("tenant__slug", "Slug of the tenant."),
            "revoked": present("revoked_at", "Whether the key is revoked."),
            "name": contains("name", "Part of the name."),
            "prefix": exact("prefix", "The first characters of the key."),
        },
    )

    def post(self, request: Request) -> Response:
        """Create an API key. Only this response contains its text."""
        key, text = create_api_key(**self.body(), actor=self.actor)
        key.text = text  # shown once, stored nowhere
        return self.show(key, 201, shape=CreatedApiKeyShape)


class OneApiKey(_Keys, Changeable):
    """One API key."""

    changed = staticmethod(change_api_key)
    bodies = by_method(PUT=ApiKeyChange, PATCH=ApiKeyChange)


class ApiKeyRevocation(_Keys, Verb):
    """Revoke the key permanently. Every gateway rejects it within seconds, and a repeated call changes nothing.

    The status is 202 if the database cannot be written: the revocation is then on the bus and is stored later.
    """

    shape = RevokedApiKeyShape
    bodies = by_method(POST=ChangeBody)
    answers_later = True

    @override
    def post(self, request: Request, **names: Any) -> Response:
        """Respond with 202 if the revocation is not stored yet."""
        answer = super().post(request, **names)
        if not answer.data["stored"]:
            answer.status_code = 202
        return answer

    @override
    def carry_out(self, thing: Any, **asked: Any) -> Any:
        """Revoke the key and return it as it will be stored."""
        if revoke_at_once(thing, **asked) == Revoked.ON_BUS:
            thing.revoked_at, thing.stored = timezone.now(), False
        return thing

    @override
    def _once(self, handler: Callable[..., Response], *args: Any, **kwargs: Any) -> Response:
        try:
            return super()._once(handler, *args, **kwargs)
        except CANNOT_WRITE:
            # Idempotency-Keys cannot be kept now, and a key may be revoked twice.
            return handler(*args, **kwargs)


def _not_revoked(_error: Any, _view: Any) -> ProblemError:
    sentence = "The key is not revoked: the database and the bus are unreachable. Retry."
    return ProblemError(503, sentence, headers={"Retry-After": "2"})


answer_with(BusAwayError, _not_revoked)
