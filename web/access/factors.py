"""Second factors of one's own account. A recent sign-in is required: an unattended browser must not add one."""

from __future__ import annotations

import base64
import time
from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, cast

from allauth.mfa.models import Authenticator
from allauth.mfa.totp.internal.auth import clear_totp_secret, get_totp_secret
from allauth.mfa.webauthn.internal.auth import begin_registration
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.views.decorators.http import require_http_methods, require_POST

from controlplane.access import second_factors as service
from controlplane.platform.field_problems import FieldProblem, InvalidFieldsError
from controlplane.platform.revisions import StaleRevisionError
from web.access.login import credential_of
from web.access.page import SAID, access_page, admins_only
from web.access.sign_in_steps import SIGNED_IN_AT
from web.shell.console_request import console_actor, go, row_number, sent, why
from web.shell.form_field import FormField, filled

ADDRESS = "/access/you"
LATELY_S = 900
_CODE = FormField("code", "Code", help="6 digits that the app shows now.", required=True, limit=10)
View = Callable[..., HttpResponse]


def _soon_after_sign_in(view: View) -> View:
    @wraps(view)
    def guarded(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        # Without a password, the provider alone decides whether the person may sign in.
        if not cast("User", request.user).has_usable_password():
            return JsonResponse({"error": "Your provider signs you in; add second factors there."}, status=403)
        if time.time() - request.session.get(SIGNED_IN_AT, 0) < LATELY_S:
            return view(request, *args, **kwargs)
        if request.headers.get("Accept") == "application/json":
            return JsonResponse({"error": SAID["sign-in-again"]}, status=403)
        return go(ADDRESS, said="sign-in-again")

    return guarded


@require_http_methods(["GET", "HEAD", "POST"])
@_soon_after_sign_in
def app(request: HttpRequest) -> HttpResponse:
    """Show the secret of a new authenticator app; on POST add the app and show its recovery codes once."""
    if request.method != "POST":
        return _app_page(request)
    user, actor = cast("User", request.user), console_actor(request)
    try:
        codes = service.add_app(user, get_totp_secret(), sent(request, "code"), actor=actor)
    except InvalidFieldsError as error:
        return _app_page(request, error.problems, status=422)
    clear_totp_secret(request)
    return access_page(request, "you", "Store your recovery codes now", part="codes", codes=codes)


@require_POST
@_soon_after_sign_in
def remove(request: HttpRequest, number: int) -> HttpResponse:
    """Remove an authenticator app or a passkey."""
    try:
        removed = service.remove_factor(cast("User", request.user), number, actor=console_actor(request))
    except InvalidFieldsError:
        return go(ADDRESS, said="factor-required")
    return go(ADDRESS, said="factor-removed" if removed else "nothing")


@require_POST
@admins_only
def policy(request: HttpRequest) -> HttpResponse:
    """Change who must have a second factor."""
    changes, revision = {"second_factor": sent(request, "second_factor")}, row_number(request.POST.get("revision"))
    named = {"actor": console_actor(request), "expected": revision, "why": why(request)}
    try:
        service.change_sign_in_policy(service.sign_in_policy(), changes, **named)
    except (InvalidFieldsError, StaleRevisionError):
        return go("/access/people", policy="", said="stale-policy")
    return go("/access/people", said="policy-changed")


@require_POST
@_soon_after_sign_in
def passkey_options(request: HttpRequest) -> HttpResponse:
    """Return what the browser needs to make a passkey as JSON."""
    return JsonResponse(begin_registration(cast("User", request.user), passwordless=True))


@require_POST
@_soon_after_sign_in
def add_passkey(request: HttpRequest) -> HttpResponse:
    """Store the passkey that the browser has made, and return the page to open as JSON."""
    user, name, actor = cast("User", request.user), request.GET.get("name", ""), console_actor(request)
    try:
        service.add_passkey(user, name, credential_of(request), actor=actor)
    except InvalidFieldsError as error:
        return JsonResponse({"error": error.problems[0].message}, status=422)
    return JsonResponse({"open": f"{ADDRESS}?said=passkey-added"})


def shown_factors(request: HttpRequest) -> dict[str, Any]:
    """Return what the account's page shows about second factors."""
    factors = list(Authenticator.objects.filter(user=request.user).order_by("pk"))
    codes = next((one.wrap().get_unused_codes() for one in factors if one.type == service.CODES), ())
    return {
        "factors": [
            {"id": one.pk, "title": service.TITLES[one.type], "name": one.data.get("name", "")}
            for one in factors
            if one.type != service.CODES
        ],
        "codes_left": len(codes),
        "passkeys_missing": service.passkeys_missing(request.get_host(), request.is_secure()),
    }


def _app_page(request: HttpRequest, problems: Sequence[FieldProblem] = (), status: int = 200) -> HttpResponse:
    adapter, secret = service.FactorAdapter(), get_totp_secret()
    svg = adapter.build_totp_svg(adapter.build_totp_url(request.user, secret))
    picture, fields = base64.b64encode(svg.encode()).decode(), filled([_CODE], {}, problems)
    page = {"part": "app", "secret": secret, "picture": picture, "fields": fields}
    return access_page(request, "you", "Add an authenticator app", status=status, **page)
