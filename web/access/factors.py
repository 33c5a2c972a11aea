"""Second factors of one's own account: add, remove, and new recovery codes. A recent sign-in is required."""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, cast

from allauth.mfa.totp.internal.auth import clear_totp_secret, get_totp_secret
from allauth.mfa.webauthn.internal.auth import begin_registration
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.http import require_http_methods, require_POST

from controlplane.access import second_factors
from controlplane.access.second_factors import FactorAdapter
from controlplane.platform.field_problems import FieldProblem, InvalidFieldsError
from web.access.login import credential_of
from web.access.page import access_page
from web.access.sign_in_steps import SIGNED_IN_AT
from web.shell.console_request import console_actor, go, sent
from web.shell.form_field import FormField, filled, general_problem

ADDRESS = "/access/you"
LATELY_S = 900
_AGAIN = "For this change, sign out and in again: your sign-in is older than 15 minutes."
_CODE = FormField("code", "Code", help="6 digits that the app shows now.", required=True, limit=10)
View = Callable[..., HttpResponse]


def after_recent_sign_in(view: View) -> View:
    """Reject the request if the person signed in too long ago: an unattended browser must not add a factor."""

    @wraps(view)
    def guarded(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        if time.time() - request.session.get(SIGNED_IN_AT, 0) < LATELY_S:
            return view(request, *args, **kwargs)
        if request.headers.get("Accept") == "application/json":
            return JsonResponse({"error": _AGAIN}, status=403)
        return go(ADDRESS, said="sign-in-again")

    return guarded


@require_http_methods(["GET", "HEAD", "POST"])
@after_recent_sign_in
def app(request: HttpRequest) -> HttpResponse:
    """Show the secret of a new authenticator app; on POST add the app and show the recovery codes once."""
    if request.method != "POST":
        return _app_page(request)
    try:
        codes = second_factors.add_app(
            _own(request), get_totp_secret(), sent(request, "code", 10), actor=console_actor(request)
        )
    except InvalidFieldsError as error:
        return _app_page(request, error.problems, status=422)
    clear_totp_secret(request)
    return access_page(request, "you", part="codes", codes=codes)


@require_POST
@after_recent_sign_in
def recovery_codes(request: HttpRequest) -> HttpResponse:
    """Replace the recovery codes and show them once."""
    try:
        codes = second_factors.recovery_codes(_own(request), actor=console_actor(request))
    except InvalidFieldsError:
        return go(ADDRESS, said="nothing")
    return access_page(request, "you", part="codes", codes=codes)


@require_POST
@after_recent_sign_in
def remove(request: HttpRequest, number: int) -> HttpResponse:
    """Remove an authenticator app or a passkey."""
    removed = second_factors.remove_factor(_own(request), number, actor=console_actor(request))
    return go(ADDRESS, said="factor-removed" if removed else "nothing")


@require_POST
@after_recent_sign_in
def passkey_options(request: HttpRequest) -> HttpResponse:
    """Return what the browser needs to make a passkey as JSON."""
    if missing := second_factors.passkeys_missing(request.get_host(), request.is_secure()):
        return JsonResponse({"error": missing}, status=409)
    return JsonResponse(begin_registration(_own(request), passwordless=True))


@require_POST
@after_recent_sign_in
def add_passkey(request: HttpRequest) -> HttpResponse:
    """Store the passkey that the browser has made, and return the page to open as JSON."""
    name, actor = request.GET.get("name", ""), console_actor(request)
    try:
        second_factors.add_passkey(_own(request), name, credential_of(request), actor=actor)
    except InvalidFieldsError as error:
        return JsonResponse({"error": error.problems[0].message}, status=422)
    return JsonResponse({"open": f"{ADDRESS}?said=passkey-added"})


def shown_factors(user: User, request: HttpRequest) -> dict[str, Any]:
    """Return what the account's page shows about second factors."""
    factors = second_factors.factors_of(user)
    return {
        "factors": [
            {"factor": one, "title": second_factors.TITLES[one.type], "name": one.data.get("name", "")}
            for one in factors
            if one.type != second_factors.CODES
        ],
        "codes_left": next(
            (len(one.wrap().get_unused_codes()) for one in factors if one.type == second_factors.CODES), 0
        ),
        "has_app": any(one.type == second_factors.APP for one in factors),
        "passkeys_missing": second_factors.passkeys_missing(request.get_host(), request.is_secure()),
    }


def _app_page(request: HttpRequest, problems: Sequence[FieldProblem] = (), status: int = 200) -> HttpResponse:
    adapter, secret = FactorAdapter(), get_totp_secret()
    svg = adapter.build_totp_svg(adapter.build_totp_url(_own(request), secret))
    return access_page(
        request,
        "you",
        status=status,
        part="app",
        secret=" ".join(secret[at : at + 4] for at in range(0, len(secret), 4)),
        picture=base64.b64encode(svg.encode()).decode(),
        fields=filled([_CODE], {}, problems),
        problem=general_problem([_CODE], problems),
    )


def _own(request: HttpRequest) -> User:
    return cast("User", request.user)
