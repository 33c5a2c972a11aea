"""The end of a sign-in: a new session for the person, after a second factor if they have one."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from django.conf import settings
from django.contrib.auth import login
from django.contrib.auth.models import User
from django.db import transaction
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect
from django.utils.crypto import constant_time_compare
from django.utils.http import url_has_allowed_host_and_scheme

from controlplane.access.people import KIND
from controlplane.access.second_factors import has_second_factor
from controlplane.platform import audit
from controlplane.platform.actor import CONSOLE, person
from controlplane.platform.outage.unwritable import database_writes
from controlplane.platform.request_actor import request_id_of
from controlplane.platform.role import Role
from controlplane.platform.roles import role_in
from web.access.session_record import METHOD
from web.shell.client_address import client_address
from web.shell.no_role import ONES_OWN

PASSWORD, PROVIDER = "password", "provider"
STEP_S = 300
"""Seconds from the password to the second factor."""
PROVIDER_SESSION_S = 12 * 3600
"""After it, the provider is asked again whether the person may sign in, and for their groups."""
SIGNED_IN_AT = "signed_in_at"
"""Name in the session of the Unix seconds of the sign-in."""
_PENDING = "second_step"
_BACKEND = "django.contrib.auth.backends.ModelBackend"


def safe_next(request: HttpRequest, wanted: str) -> str:
    """Return the wanted page if it belongs to this site, else the Fleet page."""
    # A link to the login page must not lead to another site.
    allowed = url_has_allowed_host_and_scheme(
        wanted, allowed_hosts={request.get_host()}, require_https=request.is_secure()
    )
    return wanted if allowed else settings.LOGIN_REDIRECT_URL


def enter(request: HttpRequest, user: User, method: str) -> None:
    """Sign the person in. Nothing of the browser's earlier session remains, its key least of all."""
    request.session.flush()
    request.session[METHOD] = method
    request.session[SIGNED_IN_AT] = time.time()
    if method == PROVIDER:
        request.session.set_expiry(PROVIDER_SESSION_S)
    login(request, user, backend=_BACKEND)
    if settings.OIDC_ISSUER and method != PROVIDER:
        # With a provider, passwords and passkeys are for emergencies.
        with database_writes().attempted(), transaction.atomic():
            actor = person(user, via=CONSOLE, request_id=request_id_of(request))
            after = {"method": method, "address": client_address(request)}
            audit.record(actor, "person.sign_in_locally", KIND, user.username, after=after)


def begin_second_step(request: HttpRequest, user: User, target: str) -> None:
    """Remember that the person's password was right, in a session without a signed-in person."""
    request.session.flush()
    request.session[_PENDING] = {
        "user": user.pk,
        "digest": user.get_session_auth_hash(),
        "next": target,
        "until": time.time() + STEP_S,
    }


def pending_person(request: HttpRequest) -> tuple[User, str] | None:
    """Return the person whose second factor is awaited, and the page that they want; None if none is or it is late."""
    pending: dict[str, Any] | None = request.session.get(_PENDING)
    if not pending or pending["until"] < time.time():
        return None
    user = User.objects.filter(pk=pending["user"], is_active=True).first()
    # A new password in the meantime ends this sign-in.
    if user is None or not constant_time_compare(user.get_session_auth_hash(), pending["digest"]):
        return None
    return user, pending["next"]


class SecondFactorMiddleware:
    """Sends admins without a required second factor to their account, and rejects their calls of the API."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        """Pass the request on; `process_view` decides after the URL is resolved."""
        return self._get_response(request)

    def process_view(self, request: HttpRequest, _view: Any, _args: Any, _kwargs: Any) -> HttpResponse | None:
        """Reject the request unless the page is the person's own or they have what is required."""
        match = request.resolver_match
        if not settings.SECOND_FACTOR_FOR_ADMINS or match is None or match.url_name in ONES_OWN:
            return None
        if not _lacks_second_factor(request):
            return None
        if match.route.startswith("api/"):
            return JsonResponse({"title": "Admins need a second factor here; add one under Access, You."}, status=403)
        return redirect("/access/you?said=second-factor-required")


def _lacks_second_factor(request: HttpRequest) -> bool:
    user = request.user
    if not isinstance(user, User) or request.session.get(METHOD) == PROVIDER:
        return False
    return role_in(user) == Role.ADMIN and not has_second_factor(user)
