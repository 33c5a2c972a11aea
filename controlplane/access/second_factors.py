"""Second factors of people: an authenticator app with recovery codes, and passkeys.

Secrets are stored encrypted with keys derived from SECRET_KEY. A passkey verifies its user, so it is a whole sign-in.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from ipaddress import ip_address
from typing import Any, cast

from allauth.mfa.adapter import DefaultMFAAdapter
from allauth.mfa.models import Authenticator
from allauth.mfa.recovery_codes.internal.auth import RecoveryCodes
from allauth.mfa.totp.internal import auth as totp
from allauth.mfa.webauthn.internal import auth as webauthn
from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from django.conf import settings
from django.contrib.auth.models import User
from django.core.cache import cache
from django.core.exceptions import ValidationError
from django.db import transaction
from typing_extensions import override

from controlplane.access.models.sign_in_policy import FactorRule, SignInPolicy
from controlplane.access.people import KIND
from controlplane.platform import audit, recorded_change
from controlplane.platform.actor import Actor
from controlplane.platform.field_problems import check_names, problem
from controlplane.platform.outage.unwritable import database_writes
from controlplane.platform.role import Role
from controlplane.platform.roles import require, role_in

APP, CODES, PASSKEY = Authenticator.Type.TOTP, Authenticator.Type.RECOVERY_CODES, Authenticator.Type.WEBAUTHN
TITLES = {APP: "authenticator app", CODES: "recovery codes", PASSKEY: "passkey"}
MAX_PASSKEYS, MAX_NAME = 20, 60
ENROLLING = "enrolling"
"""Name in the session of whether the person may only add a second factor."""
_VALID_S = 120
"""Longer than a code is accepted, with its tolerance."""
_UNREADABLE = (ValidationError, ValueError, KeyError, TypeError, AttributeError)
"""What allauth and fido2 raise for an answer that no browser sends."""


class FactorAdapter(DefaultMFAAdapter):
    """Headway's part of allauth.mfa: encryption."""

    @override
    def encrypt(self, text: str) -> str:
        """Return the text, encrypted with the key in use."""
        return _boxes().encrypt(text.encode()).decode()

    @override
    def decrypt(self, encrypted_text: str) -> str:
        """Return the text. Without its key, return one that no code matches."""
        try:
            return _boxes().decrypt(encrypted_text).decode()
        except InvalidToken:
            return totp.generate_totp_secret()


def _boxes() -> MultiFernet:
    keys = (f"second factors {key}" for key in (settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS))
    return MultiFernet(Fernet(base64.urlsafe_b64encode(hashlib.sha256(key.encode()).digest())) for key in keys)


def encrypt_all_again() -> None:
    """Encrypt all secrets with the key in use, so that the other key is no longer needed."""
    for number in Authenticator.objects.filter(type__in=(APP, CODES)).values_list("pk", flat=True):
        with transaction.atomic():
            stored = Authenticator.objects.select_for_update().get(pk=number)
            name = "secret" if stored.type == APP else "seed"
            stored.data[name] = _boxes().rotate(stored.data[name]).decode()
            stored.save(update_fields=["data"])


def passkeys_missing(host: str, secure: bool) -> str:
    """Return why browsers offer no passkeys for this host (with or without a port); empty if they do."""
    name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
    try:
        ip_address(name.strip("[]"))
    except ValueError:
        local = name == "localhost" or name.endswith(".localhost")
        return "" if secure or local else "Passkeys need HTTPS. Open the console over HTTPS or at localhost."
    return f"Passkeys need a host name, and {name} is an IP address. Open the console at its name or at localhost."


def has_second_factor(user: User) -> bool:
    """Return whether the person's password is not enough to sign in."""
    return Authenticator.objects.filter(user=user, type__in=(APP, PASSKEY)).exists()


def sign_in_policy() -> SignInPolicy:
    """Return the stored row or, before the first change, an unsaved one."""
    return SignInPolicy.objects.filter(pk=SignInPolicy.ONLY).first() or SignInPolicy()


def change_sign_in_policy(
    row: SignInPolicy, changes: Mapping[str, Any], *, actor: Actor, expected: int | None = None, why: str = ""
) -> SignInPolicy:
    """Change who must have a second factor, from the next sign-in on.

    Raises NotAllowedError, InvalidFieldsError, StaleRevisionError.
    """
    require(actor, Role.ADMIN)
    check_names(changes, {"second_factor"})
    # The change locks the stored row, so there must be one.
    SignInPolicy.objects.get_or_create(pk=SignInPolicy.ONLY)
    return recorded_change.change(row, changes, "sign_in_policy.change", actor=actor, expected=expected, why=why)


def lacks_factor(user: User) -> bool:
    """Return whether the policy requires a second factor from the person, and they have none."""
    rule = sign_in_policy().second_factor
    required = rule == FactorRule.EVERYONE or (rule == FactorRule.ADMINS and role_in(user) == Role.ADMIN)
    # Without a password, the provider alone decides how the person signs in.
    return required and user.has_usable_password() and not has_second_factor(user)


def add_app(user: User, secret: str, code: str, *, actor: Actor) -> list[str]:
    """Add an authenticator app that shows this code now, and return new recovery codes. Raises InvalidFieldsError."""
    if not totp.validate_totp_code(secret, code):
        raise problem("code", "The code does not match. Check the clock of your device, and type the newest code.")
    with transaction.atomic():
        # A new app replaces the one before, and its codes.
        Authenticator.objects.filter(user=user, type__in=(APP, CODES)).delete()
        totp.TOTP.activate(user, secret)
        _record("person.add_factor", user, APP, actor)
        return cast("list[str]", RecoveryCodes.activate(user).get_unused_codes())


def add_passkey(user: User, name: str, credential: dict[str, Any], *, actor: Actor) -> None:
    """Add the passkey that the browser has made. Raises InvalidFieldsError."""
    try:
        webauthn.complete_registration(credential)
    except _UNREADABLE as error:
        raise problem("", "The browser's answer is not valid. Try again.") from error
    with transaction.atomic():
        if Authenticator.objects.filter(user=user, type=PASSKEY).count() >= MAX_PASSKEYS:
            raise problem("", f"You have {MAX_PASSKEYS} passkeys; remove one first.")
        webauthn.WebAuthn.add(user, name.strip()[:MAX_NAME] or "unnamed", credential)
        _record("person.add_factor", user, PASSKEY, actor)


def remove_factor(user: User, number: int, *, actor: Actor) -> bool:
    """Remove the person's app with its recovery codes, or a passkey. Return False if it is gone.

    Raises InvalidFieldsError for the last one if the policy requires one.
    """
    with transaction.atomic():
        factor = Authenticator.objects.filter(user=user, pk=number, type__in=(APP, PASSKEY)).first()
        if factor is None:
            return False
        factor.delete()
        if factor.type == APP:
            Authenticator.objects.filter(user=user, type=CODES).delete()
        if lacks_factor(user):
            raise problem("", "A second factor is required. Add another one first.")
        _record("person.remove_factor", user, factor.type, actor)
    return True


def reset_factors(user: User, *, actor: Actor, why: str = "") -> bool:
    """Remove all factors of a person who has lost them. Return False without any. Raises NotAllowedError."""
    require(actor, Role.ADMIN)
    with transaction.atomic():
        removed, _ = Authenticator.objects.filter(user=user).delete()
        if removed:
            audit.record(actor, "person.reset_factors", KIND, user.username, after={"removed": removed}, why=why)
    return bool(removed)


def check_code(user: User, code: str, *, actor: Actor) -> str:
    """Return what a typed code is: `code` of the app, `recovery code`, or empty if it is wrong. Codes work once."""
    for factor in Authenticator.objects.filter(user=user):
        if factor.type == APP and _is_new_code(factor, code):
            return "code"
        if factor.type == CODES and _uses_recovery_code(user, factor, code, actor):
            return "recovery code"
    return ""


def _is_new_code(factor: Authenticator, code: str) -> bool:
    secret = FactorAdapter().decrypt(factor.data["secret"])
    counter = next((at for at in totp.yield_hotp_counters_from_time() if _matches(secret, at, code)), None)
    # In this process's memory as well: the database may not be writable.
    if counter is None or not cache.add(f"second-factor:{factor.pk}:{counter}", value=True, timeout=_VALID_S):
        return False
    fresh = True
    with database_writes().attempted():
        stored = Authenticator.objects.select_for_update().get(pk=factor.pk)
        fresh = counter > stored.data.get("last_counter", 0)
        stored.data["last_counter"] = max(counter, stored.data.get("last_counter", 0))
        stored.save(update_fields=["data"])
    return fresh


def _matches(secret: str, counter: int, code: str) -> bool:
    return bool(totp.compare_user_code(actual=code, expected=totp.format_hotp_value(totp.hotp_value(secret, counter))))


def _uses_recovery_code(user: User, factor: Authenticator, code: str, actor: Actor) -> bool:
    used = False
    with database_writes().attempted():
        used = RecoveryCodes(Authenticator.objects.select_for_update().get(pk=factor.pk)).validate_code(code)
        if used:
            _record("person.use_recovery_code", user, CODES, actor)
    return used


def person_with_passkey(credential: dict[str, Any]) -> User | None:
    """Return the person whose passkey has signed the session's challenge; None if no known one has.

    A person without a password is signed in by their provider alone.
    """
    try:
        user = webauthn.extract_user_from_response(credential)
        webauthn.complete_authentication(user, credential)
    except _UNREADABLE:
        return None
    return cast("User", user) if user.has_usable_password() else None


def _record(verb: str, user: User, factor: str, actor: Actor) -> None:
    audit.record(actor, verb, KIND, user.username, after={"factor": TITLES[Authenticator.Type(factor)]})
