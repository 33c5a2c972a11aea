"""Reads signed-in people together with their preferences."""

from __future__ import annotations

from django.contrib.auth.backends import ModelBackend
from django.contrib.auth.models import User
from typing_extensions import override


class PersonBackend(ModelBackend):
    """Django's own check of names and passwords. `user.person` of a request costs no query."""

    @override
    def get_user(self, user_id: int) -> User | None:
        """Return the account with its person; None if it was deleted or deactivated."""
        user = User.objects.select_related("person").filter(pk=user_id).first()
        return user if user is not None and self.user_can_authenticate(user) else None
