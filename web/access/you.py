"""The page of a person's own account: roles, password, sessions. Everyone can open it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse
from django.utils import timezone
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_POST, require_safe

from controlplane.access.models.role_grant import RoleGrant
from controlplane.access.people import MAX_PASSWORD, set_password
from controlplane.access.sessions import open_sessions, sign_out_everywhere
from controlplane.platform.field_problems import FieldProblem, InvalidFieldsError, problem
from controlplane.platform.format import count
from controlplane.platform.role import Role
from controlplane.platform.roles import role_in
from web.access.factors import shown_factors
from web.access.keys import keys
from web.access.login_throttle import LoginThrottle, hashing
from web.access.page import access_page
from web.access.session_record import keep_signed_in
from web.access.sessions import session_row
from web.shell.client_address import client_address
from web.shell.console_request import console_actor, go
from web.shell.form_field import PASSWORD, FormField, filled, general_problem

ADDRESS = "/access/you"
MAX_SESSIONS = 100
_FIELDS = (
    FormField("old", "Current password", PASSWORD, limit=MAX_PASSWORD, autocomplete="current-password", required=True),
    FormField(
        "password",
        "New password",
        PASSWORD,
        help="At least 8 characters, not a common one.",
        limit=MAX_PASSWORD,
        autocomplete="new-password",
        required=True,
    ),
)


@require_safe
def access(request: HttpRequest) -> HttpResponse:
    """Open Access: the API keys for admins, the person's own account for everyone else."""
    return keys(request) if role_in(request.user) == Role.ADMIN else _page(request)


@require_safe
def you(request: HttpRequest) -> HttpResponse:
    """Show the person's own account."""
    return _page(request)


@sensitive_post_parameters("old", "password")
@require_POST
def change_own_password(request: HttpRequest) -> HttpResponse:
    """Set the person's password and end their other sessions. Wrong old passwords are throttled as at sign-in."""
    user = cast("User", request.user)
    throttle, address = LoginThrottle(), client_address(request)
    try:
        if wait_s := throttle.attempt(user.username, address):
            raise problem("old", f"Too many attempts. Try again in {wait_s} s.")
        old = request.POST.get("old", "")
        with hashing() as free:
            if not free or len(old) > MAX_PASSWORD or not user.check_password(old):
                raise problem("old", "This is not your current password." if free else "Too many attempts. Try again.")
        throttle.succeeded(user.username, address)
        own = request.session.session_key or ""
        set_password(user, request.POST.get("password", ""), actor=console_actor(request), keep_session=own)
    except InvalidFieldsError as error:
        return _page(request, problems=error.problems, status=422)
    keep_signed_in(request, user)
    return go(ADDRESS, said="password-set")


@require_POST
def end_other_sessions(request: HttpRequest) -> HttpResponse:
    """End the person's sessions in other browsers."""
    user, own = cast("User", request.user), request.session.session_key or ""
    ended = sign_out_everywhere(user, actor=console_actor(request), keep_session=own)
    return go(ADDRESS, said="signed-out" if ended else "nothing")


def _page(request: HttpRequest, *, problems: Sequence[FieldProblem] = (), status: int = 200) -> HttpResponse:
    now = timezone.now()
    own = open_sessions().filter(user=request.user.pk)[:MAX_SESSIONS]
    grants = list(RoleGrant.objects.filter(user=request.user.pk).select_related("pool"))
    return access_page(
        request,
        "you",
        _heading(cast("User", request.user), grants),
        status=status,
        grants=grants,
        rows=[session_row(session, now, request) for session in own],
        part="account",
        **shown_factors(request),
        fields=filled(_FIELDS, {}, problems),
        problem=general_problem(_FIELDS, problems),
    )


def _heading(user: User, grants: Sequence[RoleGrant]) -> str:
    if (role := role_in(user)) is not None:
        return f"You are {role} in all pools"
    pools = {grant.pool_id for grant in grants}
    return f"You have a role in {count(len(pools), 'pool')}" if pools else "You have no role yet"
