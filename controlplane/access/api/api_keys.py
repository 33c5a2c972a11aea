"""`/api/v1/keys`."""

from __future__ import annotations

from typing import Any

from django.db.models import QuerySet
from rest_framework.request import Request
from rest_framework.response import Response
from typing_extensions import override

from controlplane.access.api.api_key_shape import ApiKeyChange, ApiKeyShape, CreatedApiKeyShape, NewApiKey
from controlplane.access.api_keys import change_api_key, create_api_key, revoke_api_key
from controlplane.platform.api.base import ApiView, by_method, taken_why
from controlplane.platform.api.changeable_object import Changeable
from controlplane.platform.api.etags import expected_revision
from controlplane.platform.api.filters import contains, exact, present
from controlplane.platform.api.listing import Listing
from controlplane.platform.api.strict_fields import Change
from controlplane.platform.models.api_key import ApiKey
from controlplane.platform.role import Role


def _keys() -> QuerySet[ApiKey]:
    return ApiKey.objects.select_related("tenant")


class ApiKeys(ApiView):
    """All API keys, and new ones."""

    noun = "keys"
    shape = ApiKeyShape
    bodies = by_method(POST=NewApiKey)
    answers = by_method(POST=(201, CreatedApiKeyShape))
    changes_need = Role.ADMIN
    whole_fleet = True
    has_etag = True
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

    def get(self, request: Request) -> Response:
        """List API keys."""
        return self.show_page(_keys())

    def post(self, request: Request) -> Response:
        """Create an API key; the answer is the only place where its text is ever shown."""
        return self.once(self._create)

    def _create(self) -> Response:
        key, text = create_api_key(**self.body(), actor=self.actor)
        key.text = text  # shown once, stored nowhere
        return self.show(key, 201, shape=CreatedApiKeyShape)


class OneApiKey(Changeable):
    """One API key."""

    noun = "keys"
    shape = ApiKeyShape
    bodies = by_method(PUT=ApiKeyChange, PATCH=ApiKeyChange)
    changes_need = Role.ADMIN
    whole_fleet = True

    @override
    def thing(self, *, key_id: str) -> ApiKey:
        """Return the key."""
        return _keys().get(key_id=key_id)

    @override
    def change(self, thing: ApiKey, changes: dict[str, Any], *, expected: int | None, why: str) -> ApiKey:
        """Change it."""
        return change_api_key(thing, changes, actor=self.actor, expected=expected, why=why)


class ApiKeyRevocation(ApiView):
    """The end of one API key."""

    noun = "keys"
    shape = ApiKeyShape
    bodies = by_method(POST=Change)
    changes_need = Role.ADMIN
    whole_fleet = True
    has_etag = True

    def post(self, request: Request, *, key_id: str) -> Response:
        """Revoke the key for good; every gateway refuses it within seconds. Repeating it changes nothing."""
        return self.once(lambda: self._revoke(key_id))

    def _revoke(self, key_id: str) -> Response:
        key = _keys().get(key_id=key_id)
        expected = expected_revision(self.request, key, required=False)
        revoke_api_key(key, actor=self.actor, expected=expected, why=taken_why(self.body()))
        return self.show(_keys().get(key_id=key_id))
