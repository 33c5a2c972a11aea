"""Console sessions in the database, valid on every web process during a rotation of the signing key.

A session contains a digest of its person's password, made with the key. With another key, Django replaces the digest
and the session's cookie, and Channels ends the session. Without this store, web processes one rotation step apart would
end each other's sessions.
"""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.contrib.auth import HASH_SESSION_KEY, SESSION_KEY, get_user_model
from django.contrib.sessions.backends.db import SessionStore as DatabaseStore
from django.contrib.sessions.models import Session
from django.db import transaction
from django.utils import timezone
from django.utils.crypto import constant_time_compare
from typing_extensions import override


class SessionStore(DatabaseStore):
    """Translates a digest made with the other accepted key into one made with the key in use, without writing."""

    @classmethod
    @override
    def get_model_class(cls) -> type[Session]:
        """Return the model of Django's own session store, to keep its table."""
        return Session

    @override
    def load(self) -> dict[str, Any]:
        """Return the session's data."""
        return under_key_in_use(super().load())


def under_key_in_use(data: dict[str, Any]) -> dict[str, Any]:
    """Return the session's data. A digest made with the other accepted key becomes one made with the key in use."""
    digest = data.get(HASH_SESSION_KEY)
    if not settings.SECRET_KEY_FALLBACKS or not digest:
        return data
    user = get_user_model().objects.filter(pk=data.get(SESSION_KEY)).first()
    if user is None or not any(constant_time_compare(digest, item) for item in user.get_session_auth_fallback_hash()):
        return data
    # Django would write this digest, with a new cookie, which a process that uses the other key would replace again.
    return {**data, HASH_SESSION_KEY: user.get_session_auth_hash()}


def sign_all_again() -> int:
    """Sign all open sessions with the key in use, so that the other key is no longer needed. Return their number."""
    store, signed = SessionStore(), 0
    for session in Session.objects.filter(expire_date__gt=timezone.now()).iterator():
        data = under_key_in_use(store.decode(session.session_data))
        with transaction.atomic():
            # A session that is written meanwhile is signed by its writer.
            unchanged = Session.objects.filter(pk=session.pk, session_data=session.session_data)
            signed += unchanged.update(session_data=store.encode(data)) if data else 0
    return signed
