"""`/api/v1/keys`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.utils import timezone
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from typing_extensions import override

from controlplane.access.api_keys import (
    MAX_OVERLAP_H,
    OVERLAP_H,
    Revoked,
    end_previous_secret,
    revoke_at_once,
    rotate_api_key,
)
from controlplane.access.resources import GROUP_GRANTS, KEYS, TENANTS
from controlplane.platform.api.error_answers import answer_with
from controlplane.platform.api.listing import Listing, contains, exact, present
from controlplane.platform.api.problem import ProblemError
from controlplane.platform.api.resource_bodies import ResourceShape, change_body, new_body, object_views
from controlplane.platform.api.strict_fields import ChangeBody, WholeNumber
from controlplane.platform.api.views import Changeable, Listed, Objects, Verb, by_method
from controlplane.platform.models.api_key import ApiKey
from controlplane.platform.outage.unwritable import CANNOT_WRITE
from gateway.bus.bus import BusAwayError


class ApiKeyShape(ResourceShape):
    """A credential that clients send with requests."""

    class Meta:
        model = ApiKey


class CreatedApiKeyShape(ApiKeyShape):
    """A new key, including its text."""

    text = serializers.CharField(allow_null=True, help_text="The key, shown only once; null in a repeated response.")


class RevokedApiKeyShape(ApiKeyShape):
    """A revoked key."""

    stored = serializers.BooleanField(
        default=True,
        read_only=True,
        help_text="False: gateways reject the key, but the database is not writable.",
    )


ApiKeyChange = change_body(ApiKey)


class ApiKeyRotationBody(ChangeBody):
    """How long the previous secret stays valid."""

    overlap_h = WholeNumber(
        min_value=0,
        max_value=MAX_OVERLAP_H,
        default=OVERLAP_H,
        help_text="Hours for which the secret in use stays valid; an earlier one ends immediately.",
    )


class _Keys(Objects):
    resource = KEYS
    shape = ApiKeyShape


class ApiKeys(_Keys, Listed):
    """List API keys."""

    bodies = by_method(POST=new_body(ApiKey))
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
        key, text = KEYS.created(**self.body(), actor=self.actor)
        key.text = text  # shown once, stored nowhere
        return self.show(key, 201, shape=CreatedApiKeyShape)


class OneApiKey(_Keys, Changeable):
    """One API key."""

    bodies = by_method(PUT=ApiKeyChange, PATCH=ApiKeyChange)


class ApiKeyRotation(_Keys, Verb):
    """Give the key a new secret. Only this response contains its text; the previous secret stays valid for a while."""

    shape = CreatedApiKeyShape
    bodies = by_method(POST=ApiKeyRotationBody)
    shown_once = frozenset({"text"})

    @override
    def carry_out(self, thing: Any, **asked: Any) -> Any:
        """Rotate the key and return it with its text."""
        key, text = rotate_api_key(thing, **asked)
        key.text = text
        return key


class ApiKeyPreviousEnd(_Keys, Verb):
    """Reject the previous secret of a rotated key at once. Without one, nothing changes."""

    verb = staticmethod(end_previous_secret)
    bodies = by_method(POST=ChangeBody)


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
TenantsView, OneTenant = object_views(TENANTS, "tenant", ("name", contains("name", "Part of the name.")))
GroupGrantsView, OneGroupGrant = object_views(
    GROUP_GRANTS,
    "group grant",
    ("group", exact("group", "Name of the group.")),
    ("pool", exact("pool", "Id of the pool, or *.")),
    order=("group", "pool"),
)
