"""Invitation links: an admin makes one, and the person sets their own password with it.

A link is a code by Django's generator, keyed by SECRET_KEY, of the person, their password's hash, and their revision.
Nothing of it is stored: the password that it sets, a newer link, and any other change of the person end it.
"""

from __future__ import annotations

from datetime import timedelta

from django.conf import settings
from django.contrib.auth.tokens import PasswordResetTokenGenerator
from django.db import transaction
from django.utils import timezone
from typing_extensions import override

from controlplane.access.models.person import Person
from controlplane.access.people import set_password
from controlplane.platform import actor as actors
from controlplane.platform import audit
from controlplane.platform.actor import Actor
from controlplane.platform.field_problems import problem
from controlplane.platform.revisions import bump, locked
from controlplane.platform.role import Role
from controlplane.platform.roles import require

LASTS = timedelta(seconds=settings.PASSWORD_RESET_TIMEOUT)


class _Codes(PasswordResetTokenGenerator):
    key_salt = "headway.invitation"

    @override
    def _make_hash_value(self, user: Person, timestamp: int) -> str:
        return f"{user.pk} {user.password} {user.revision} {user.is_active} {timestamp}"


_codes = _Codes()


def invite(person: Person, *, actor: Actor, why: str = "") -> str:
    """Return the secret part of a new link, which ends all earlier ones.

    Raises NotAllowedError unless the actor is an admin, and InvalidFieldsError for an inactive person.
    """
    require(actor, Role.ADMIN)
    with transaction.atomic():
        stored = locked(person, None)
        if not stored.is_active:
            raise problem("", "An inactive person cannot be invited; activate them first.")
        bump(stored, {})
        until = (timezone.now() + LASTS).isoformat(timespec="seconds")
        audit.record_for(actor, "person.invite", stored, after={"until": until}, why=why)
    return f"{stored.pk}-{_codes.make_token(stored)}"


def invited(text: str) -> Person | None:
    """Return the person whose link has this secret part; None if it is wrong, has ended, or was used."""
    number, _, code = text.partition("-")
    known = number.isascii() and number.isdecimal() and len(number) < 18
    person = Person.objects.filter(pk=int(number), is_active=True).first() if known else None
    return person if person is not None and _codes.check_token(person, code) else None


def accept(text: str, password: str, *, via: str, request_id: str = "") -> Person | None:
    """Set the person's password, once per link; None if the link has ended. Raises InvalidFieldsError."""
    person = invited(text)
    if person is None:
        return None
    with transaction.atomic():
        # Of two requests with one link, the second waits here and then finds another password.
        locked(person, None)
        if (person := invited(text)) is not None:
            set_password(
                person, password, actor=actors.person(person, via=via, request_id=request_id), why="invitation"
            )
    return person
