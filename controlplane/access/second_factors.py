"""Second factors of people: an authenticator app, recovery codes, and passkeys.

Secrets are stored encrypted with keys derived from SECRET_KEY. A passkey verifies its user, so it is a whole sign-in.
"""

from __future__ import annotations

import base64
import hashlib
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
from django.utils import timezone
from typing_extensions import override

from controlplane.access.people import KIND
from controlplane.platform import audit
from controlplane.platform.actor import Actor
from controlplane.platform.field_problems import problem
from controlplane.platform.outage.unwritable import database_writes
from controlplane.platform.role import Role
from controlplane.platform.roles import require

APP, CODES, PASSKEY = Authenticator.Type.TOTP, Authenticator.Type.RECOVERY_CODES, Authenticator.Type.WEBAUTHN
TITLES = {APP: "Authenticator app", CODES: "Recovery codes", PASSKEY: "Passkey"}
MAX_PASSKEYS = 20
MAX_NAME = 60
_VALID_S = 120
"""Longer than a code is accepted, with its tolerance."""


class FactorAdapter(DefaultMFAAdapter):
    """Headway's part of allauth.mfa: encryption, and the names that people see in their apps."""

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

    @override
    def get_totp_issuer(self) -> str:
        """Return the name of this program."""
        return "Headway"

    @override
    def get_public_key_credential_rp_entity(self) -> dict[str, str]:
        """Return the host name to which passkeys are bound."""
        return {**super().get_public_key_credential_rp_entity(), "name": "Headway"}


def _boxes() -> MultiFernet:
    keys = [settings.SECRET_KEY, *settings.SECRET_KEY_FALLBACKS]
    return MultiFernet(
        [Fernet(base64.urlsafe_b64encode(hashlib.sha256(b"second factors\0" + key.encode()).digest())) for key in keys]
    )


def encrypt_all_again() -> int:
    """Encrypt all secrets with the key in use, so that the other key is no longer needed. Return their number."""
    names, changed = ("secret", "seed"), 0
    for factor in Authenticator.objects.filter(type__in=(APP, CODES)):
        with transaction.atomic():
            stored = Authenticator.objects.select_for_update().get(pk=factor.pk)
            name = next(name for name in names if name in stored.data)
            stored.data[name] = _boxes().rotate(stored.data[name]).decode()
            stored.save(update_fields=["data"])
            changed += 1
    return changed


def passkeys_missing(host: str, secure: bool) -> str:
    """Return why browsers offer no passkeys for this host (with or without a port); empty if they do."""
    name = host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host
    try:
        ip_address(name.strip("[]"))
    except ValueError:
        local = name == "localhost" or name.endswith(".localhost")
        return "" if secure or local else "Passkeys need HTTPS. Open the console over HTTPS or at localhost."
    return (
        f"Browsers bind passkeys to host names, and {name} is an IP address. Open the console at its name or localhost."
    )


def factors_of(user: User) -> list[Authenticator]:
    """Return the person's factors, oldest first."""
    return list(Authenticator.objects.filter(user=user).order_by("pk"))


def has_second_factor(user: User) -> bool:
    """Return whether the person's password is not enough to sign in."""
    return Authenticator.objects.filter(user=user, type__in=(APP, PASSKEY)).exists()


def add_app(user: User, secret: str, code: str, *, actor: Actor) -> list[str]:
    """Add an authenticator app that shows this code now, and return the recovery codes. Raises InvalidFieldsError."""
    if not totp.validate_totp_code(secret, code):
        raise problem("code", "The code does not match. Check the clock of your device, and type the newest code.")
    with transaction.atomic():
        if Authenticator.objects.filter(user=user, type=APP).exists():
            raise problem("", "You already have an authenticator app; remove it first.")
        totp.TOTP.activate(user, secret)
        _record("person.add_factor", user, APP, actor)
    return recovery_codes(user, actor=actor)


def recovery_codes(user: User, *, actor: Actor) -> list[str]:
    """Replace the person's recovery codes and return them. Raises InvalidFieldsError without another factor."""
    with transaction.atomic():
        if not has_second_factor(user):
            raise problem("", "Add an authenticator app or a passkey first.")
        Authenticator.objects.filter(user=user, type=CODES).delete()
        codes = RecoveryCodes.activate(user).get_unused_codes()
        _record("person.new_recovery_codes", user, CODES, actor)
    return cast("list[str]", codes)


def add_passkey(user: User, name: str, credential: dict[str, Any], *, actor: Actor) -> None:
    """Add the passkey that the browser has made. Raises InvalidFieldsError."""
    try:
        webauthn.complete_registration(webauthn.parse_registration_response(credential) and credential)
    except (ValidationError, ValueError, KeyError) as error:
        raise problem("", "The browser's answer is not valid. Try again.") from error
    with transaction.atomic():
        if Authenticator.objects.filter(user=user, type=PASSKEY).count() >= MAX_PASSKEYS:
            raise problem("", f"You have {MAX_PASSKEYS} passkeys; remove one first.")
        webauthn.WebAuthn.add(user, name.strip()[:MAX_NAME] or "Passkey", credential)
        _record("person.add_factor", user, PASSKEY, actor)


def remove_factor(user: User, number: int, *, actor: Actor) -> bool:
    """Remove one of the person's factors. Without another, the recovery codes go, too. Return False if it is gone."""
    with transaction.atomic():
        factor = Authenticator.objects.filter(user=user, pk=number).exclude(type=CODES).first()
        if factor is None:
            return False
        factor.delete()
        if not has_second_factor(user):
            Authenticator.objects.filter(user=user).delete()
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
    for factor in factors_of(user):
        if factor.type == APP and _is_new_code(factor, code):
            return "code"
        if factor.type == CODES and _uses_recovery_code(user, factor, code, actor):
            return "recovery code"
    return ""


def _is_new_code(factor: Authenticator, code: str) -> bool:
    secret = FactorAdapter().decrypt(factor.data["secret"])
    counters = [at for at in totp.yield_hotp_counters_from_time() if _matches(secret, at, code)]
    # In this process's memory as well: the database may not be writable.
    if not counters or not cache.add(f"second-factor:{factor.pk}:{counters[0]}", value=True, timeout=_VALID_S):
        return False
    fresh = True
    with database_writes().attempted():
        stored = Authenticator.objects.select_for_update().get(pk=factor.pk)
        fresh = counters[0] > stored.data.get("last_counter", 0)
        if fresh:
            stored.data["last_counter"], stored.last_used_at = counters[0], timezone.now()
            stored.save(update_fields=["data", "last_used_at"])
    return fresh


def _matches(secret: str, counter: int, code: str) -> bool:
    return bool(totp.compare_user_code(actual=code, expected=totp.format_hotp_value(totp.hotp_value(secret, counter))))


def _uses_recovery_code(user: User, factor: Authenticator, code: str, actor: Actor) -> bool:
    used = False
    with database_writes().attempted():
        stored = Authenticator.objects.select_for_update().get(pk=factor.pk)
        used = RecoveryCodes(stored).validate_code(code)
        if used:
            stored.record_usage()
            _record("person.use_recovery_code", user, CODES, actor)
    return used


def begin_passkey_sign_in() -> dict[str, Any]:
    """Return the options for the browser, and keep the challenge in the session."""
    return cast("dict[str, Any]", webauthn.begin_authentication(None))


def person_with_passkey(credential: dict[str, Any]) -> User | None:
    """Return the person who has signed the session's challenge; None if no known passkey has."""
    try:
        user = webauthn.extract_user_from_response(credential)
        factor = webauthn.complete_authentication(user, credential)
    except (ValidationError, ValueError, KeyError, TypeError, AttributeError):
        return None
    with database_writes().attempted():
        factor.record_usage()
    return cast("User", user)


def _record(verb: str, user: User, factor: str, actor: Actor) -> None:
    audit.record(actor, verb, KIND, user.username, after={"factor": TITLES[Authenticator.Type(factor)].lower()})
