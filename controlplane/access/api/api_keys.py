"""`/api/v1/keys`."""

from __future__ import annotations

from django.db.models import QuerySet
from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.access.api.api_key_shape import ApiKeyChange, ApiKeyShape, CreatedApiKeyShape, NewApiKey
from controlplane.access.api_keys import change_api_key, create_api_key, revoke_api_key
from controlplane.platform.actor import Actor
from controlplane.platform.api.base import ApiView, by_method, taken_why
from controlplane.platform.api.changeable_object import Changeable
from controlplane.platform.api.etags import expected_revision
from controlplane.platform.api.filters import contains, exact, present
from controlplane.platform.api.listing import Listing
from controlplane.platform.api.strict_fields import Change
from controlplane.platform.models.api_key import ApiKey
from controlplane.platform.role import Role


def _keys(_actor: Actor) -> QuerySet[ApiKey]:
    """Return all keys: who may see one may see them all."""
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
        return self.show_page(_keys(self.actor))

    def post(self, request: Request) -> Response:
        """Create an API key; the answer is the only place where its text is ever shown."""
        key, text = create_api_key(**self.body(), actor=self.actor)
        key.text = text  # shown once, stored nowhere
        return self.show(key, 201, shape=CreatedApiKeyShape)


class OneApiKey(Changeable):
    """One API key."""

    noun = "keys"
    shape = ApiKeyShape
    rows = staticmethod(_keys)
    changed = staticmethod(change_api_key)
    bodies = by_method(PUT=ApiKeyChange, PATCH=ApiKeyChange)
    changes_need = Role.ADMIN
    whole_fleet = True


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
        key = _keys(self.actor).get(key_id=key_id)
        expected = expected_revision(self.request, key, required=False)
        revoke_api_key(key, actor=self.actor, expected=expected, why=taken_why(self.body()))
        return self.show(_keys(self.actor).get(key_id=key_id))
