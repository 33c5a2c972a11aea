"""Sign-in and sign-out."""

from __future__ import annotations

import json
from typing import Any

from allauth.mfa.webauthn.internal.auth import begin_authentication
from django.conf import settings
from django.contrib.auth import authenticate, logout
from django.contrib.auth.decorators import login_not_required
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect, render
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods, require_POST

from controlplane.access.invitations import accept, invited
from controlplane.access.second_factors import check_code, has_second_factor, passkeys_missing, person_with_passkey
from controlplane.platform.actor import CONSOLE, person
from controlplane.platform.field_problems import InvalidFieldsError
from controlplane.platform.request_actor import request_id_of
from web.access.login_throttle import LoginThrottle, hashing
from web.access.sign_in_steps import PASSWORD, begin_second_step, enter, pending_person, safe_next
from web.shell.client_address import client_address
from web.shell.console_request import sent
from web.shell.frame import shell_context

MAX_FIELD = 256
MAX_CREDENTIAL = 64 << 10
_LATE = "Signing in took too long. Start again."


@sensitive_post_parameters("password")
@login_not_required
@require_http_methods(["GET", "POST"])
def sign_in(request: HttpRequest) -> HttpResponse:
    """Show the sign-in form; on POST sign in and redirect to `next` if it is a path of this site."""
    target = safe_next(request, request.POST.get("next") or request.GET.get("next") or "")
    if request.user.is_authenticated:
        return redirect(target)
    if request.method == "GET":
        return login_form(request, target, error=_LATE if "late" in request.GET else "")
    # No database takes a NUL, and no name holds one.
    name = request.POST.get("username", "")[:MAX_FIELD].replace("\0", "")
    password = request.POST.get("password", "")
    address = client_address(request)
    throttle = LoginThrottle()
    # Charged before the check: attempts that come at once would all pass otherwise.
    if wait_s := throttle.attempt(name, address):
        return _try_later(request, target, name, wait_s)
    # An over-long password is rejected before it is hashed: hashing megabytes is an attack on us.
    user = None
    if len(password) <= MAX_FIELD:
        with hashing() as free:
            if not free:
                return _try_later(request, target, name, 1)
            user = authenticate(request, username=name, password=password)
    if not isinstance(user, User):
        # The same words for a name that does not exist: they must not reveal who has an account.
        return login_form(request, target, name, "Name and password do not match.")
    return _after_password(request, user, target)


def _after_password(request: HttpRequest, user: User, target: str) -> HttpResponse:
    if has_second_factor(user):
        # Attempts are refunded after the code: otherwise a known password would make guesses of codes free.
        begin_second_step(request, user, target)
        return redirect("login-second")
    LoginThrottle().succeeded(user.username, client_address(request))
    enter(request, user, PASSWORD)
    return redirect(target)


@login_not_required
@require_http_methods(["GET", "POST"])
def second_step(request: HttpRequest) -> HttpResponse:
    """Ask for the second factor; on POST check a code and sign in."""
    pending = pending_person(request)
    if pending is None:
        return redirect("/login?late")
    user, target = pending
    error, status = "", 200
    if request.method == "POST":
        throttle = LoginThrottle()
        if wait_s := throttle.attempt_code(user.username):
            error, status = f"Too many attempts. Try again in {wait_s} s.", 429
        elif kind := check_code(user, sent(request, "code", 40), actor=person(user, via=CONSOLE)):
            throttle.succeeded(user.username, client_address(request))
            enter(request, user, f"{PASSWORD} and {kind}")
            return redirect(target)
        else:
            error = "This code is wrong, or was used before."
    context = shell_context(request, next=target, second=True, error=error, **_offers(request))
    return render(request, "access/login.html", context, status=status)


@sensitive_post_parameters("password")
@login_not_required
@require_http_methods(["GET", "POST"])
def invitation(request: HttpRequest, code: str) -> HttpResponse:
    """Ask the person of an invitation link for a new password; on POST set it, and sign in."""
    user, error, status = invited(code), "", 200
    if request.method == "POST" and user is not None:
        with hashing() as free:
            if not free:
                return _try_later(request, "", user.username, 1)
            try:
                user = accept(code, request.POST.get("password", ""), via=CONSOLE, request_id=request_id_of(request))
            except InvalidFieldsError as invalid:
                error, status = " ".join(item.message for item in invalid.problems), 422
        if user is not None and not error:
            return _after_password(request, user.user_ptr, settings.LOGIN_REDIRECT_URL)
    if user is None:
        ended = "This invitation was used, has expired, or was replaced. Ask an admin for a new one."
        return login_form(request, error=ended, status=404)
    context = shell_context(request, invited=user.username, code=code, error=error)
    return render(request, "access/login.html", context, status=status)


@login_not_required
@require_POST
def passkey_options(request: HttpRequest) -> HttpResponse:
    """Return a challenge for the browser's passkeys as JSON."""
    if LoginThrottle().attempt_without_name(client_address(request)):
        return JsonResponse({"error": "Too many attempts. Wait half a minute."}, status=429)
    return JsonResponse(begin_authentication(None))


@login_not_required
@require_POST
def passkey_sign_in(request: HttpRequest) -> HttpResponse:
    """Sign in the person whose passkey has signed the challenge, and return the page to open as JSON."""
    credential = credential_of(request)
    user = person_with_passkey(credential) if credential else None
    if user is None or not user.is_active:
        return JsonResponse({"error": "No account here knows this passkey."}, status=403)
    target = safe_next(request, request.GET.get("next", ""))
    enter(request, user, "passkey")
    return JsonResponse({"open": target})


@require_POST
def sign_out(request: HttpRequest) -> HttpResponse:
    """End the session and redirect to the sign-in form."""
    logout(request)
    return redirect(settings.LOGOUT_REDIRECT_URL)


def credential_of(request: HttpRequest) -> dict[str, Any]:
    """Return the browser's answer to a challenge; empty if it cannot be read."""
    try:
        body = json.loads(request.body) if len(request.body) <= MAX_CREDENTIAL else None
    except (ValueError, RecursionError):
        body = None
    return body if isinstance(body, dict) else {}


def login_form(
    request: HttpRequest, target: str = "", name: str = "", error: str = "", status: int = 200
) -> HttpResponse:
    """Return the sign-in form, with the place of the first password until a person has signed in."""
    first = not User.objects.exclude(last_login=None).exists()
    context = shell_context(request, next=target, name=name, error=error, first=first, **_offers(request))
    return render(request, "access/login.html", context, status=status)


def _offers(request: HttpRequest) -> dict[str, Any]:
    return {
        "provider": settings.OIDC_ISSUER.partition("://")[2],
        "passkeys": not passkeys_missing(request.get_host(), request.is_secure()),
    }


def _try_later(request: HttpRequest, target: str, name: str, wait_s: int) -> HttpResponse:
    answer = login_form(request, target, name, f"Too many attempts. Try again in {wait_s} s.", status=429)
    answer["Retry-After"] = str(wait_s)
    return answer
