"""The end of a sign-in: a new session for the person, after a second factor if they have one."""

from __future__ import annotations

import time
from collections.abc import Callable

from django.conf import settings
from django.contrib.auth import login
from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.utils.crypto import constant_time_compare
from django.utils.http import url_has_allowed_host_and_scheme

from controlplane.access.people import KIND
from controlplane.access.second_factors import ENROLLING, lacks_factor
from controlplane.platform import audit
from controlplane.platform.actor import CONSOLE, person
from controlplane.platform.outage.unwritable import database_writes
from controlplane.platform.request_actor import request_id_of
from web.access.session_record import METHOD
from web.shell.client_address import client_address
from web.shell.console_request import go
from web.shell.frame import TOUR

PASSWORD, PROVIDER = "password", "provider"
STEP_S = 300
"""Seconds from the password to the second factor."""
PROVIDER_SESSION_S = 12 * 3600
"""After it, the provider is asked again whether the person may sign in, and for their groups."""
SIGNED_IN_AT = "signed_in_at"
"""Name in the session of the Unix seconds of the sign-in."""
_PENDING = "second_step"
_WHILE_ENROLLING = ("/access/you", "/logout", "/static/")


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
    request.session.update({METHOD: method, SIGNED_IN_AT: time.time()})
    if method == PROVIDER:
        request.session.set_expiry(PROVIDER_SESSION_S)
    if user.last_login is None:
        request.session[TOUR] = "1"
    login(request, user)
    # While the database is not writable, no factor can be added, and emergencies need someone who can sign in.
    if method == PASSWORD and lacks_factor(user) and database_writes().failing is None:
        request.session[ENROLLING] = True
        _record_sign_in(request, user, "person.sign_in_without_factor", method)
    if settings.OIDC_ISSUER and method != PROVIDER:
        # With a provider, passwords and passkeys are for emergencies.
        _record_sign_in(request, user, "person.sign_in_locally", method)


def _record_sign_in(request: HttpRequest, user: User, verb: str, method: str) -> None:
    with database_writes().attempted():
        actor = person(user, via=CONSOLE, request_id=request_id_of(request))
        audit.record(actor, verb, KIND, user.username, after={"method": method, "address": client_address(request)})


def enroll_first(get_response: Callable[[HttpRequest], HttpResponse]) -> Callable[[HttpRequest], HttpResponse]:
    """Return the middleware that shows only their own account to people who must add a second factor."""

    def respond(request: HttpRequest) -> HttpResponse:
        # Without a cookie there is no session, and a response that reads one would vary by cookies.
        signed_in = settings.SESSION_COOKIE_NAME in request.COOKIES
        if signed_in and not request.path.startswith(_WHILE_ENROLLING) and request.session.get(ENROLLING):
            if lacks_factor(request.user):
                if request.path.startswith("/api/"):
                    return JsonResponse({"detail": "Add a second factor under Access, You first."}, status=403)
                return go("/access/you", said="enroll")
            del request.session[ENROLLING]
        return get_response(request)

    return respond


def begin_second_step(request: HttpRequest, user: User, target: str) -> None:
    """Remember that the person's password was right, in a session without a signed-in person."""
    request.session.flush()
    request.session[_PENDING] = user.pk, user.get_session_auth_hash(), target, time.time() + STEP_S


def pending_person(request: HttpRequest) -> tuple[User, str] | None:
    """Return the person whose second factor is awaited, and the page that they want; None if none is or it is late."""
    number, digest, target, until_s = request.session.get(_PENDING, (None, "", "", 0))
    user = User.objects.filter(pk=number, is_active=True).first() if time.time() < until_s else None
    # A new password in the meantime ends this sign-in.
    if user is None or not constant_time_compare(user.get_session_auth_hash(), digest):
        return None
    return user, target
