"""The tabs of the Access pages, and who can open them."""

from __future__ import annotations

from functools import wraps
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from controlplane.platform.role import Role
from controlplane.platform.roles import may, role_in
from web.shell import no_role
from web.shell.console_request import console_actor
from web.shell.frame import shell_context

PAGE_ROWS = 50
TABS = (
    ("keys", "API keys", "/access/keys"),
    ("people", "People", "/access/people"),
    ("groups", "Groups", "/access/groups"),
    ("sessions", "Sessions", "/access/sessions"),
    ("tenants", "Tenants", "/access/tenants"),
    ("secrets", "Secrets", "/access/secrets"),
    ("you", "You", "/access/you"),
    ("settings", "Your settings", "/access/you/settings"),
)
SAID = {
    "key-changed": "Key changed; gateways apply it within a second.",
    "key-revoked": "Key revoked. Requests with it get 401 within 5 s.",
    "key-revoked-on-bus": (
        "Key revoked. Requests with it get 401 within 5 s. The database is not writable: Headway stores the revocation "
        "and its audit event when it is writable again."
    ),
    "previous-ended": "Previous secret ended. Requests with it get 401 within 5 s.",
    "password-set": "Password set; sessions opened with the old one have ended.",
    "signed-out": "Signed out. Open pages close within 5 s.",
    "created": "Added.",
    "changed": "Changed.",
    "deleted": "Deleted.",
    "passkey-added": "Passkey added. Use it at your next sign-in.",
    "factor-removed": "Second factor removed.",
    "factor-required": "A second factor is required. Add another one before you remove this one.",
    "enroll": "Add a second factor to continue: an authenticator app or a passkey.",
    "policy-changed": "Sign-in policy changed, in force from the next sign-in.",
    "stale-policy": "Not changed: another person changed the policy. Review it, then repeat your change.",
    "factors-reset": "Second factors removed. The person signs in with the password alone.",
    "sign-in-again": "For this change, sign out and in again: your sign-in is older than 15 minutes.",
    "settings-saved": "Saved.",
    "nothing": "No changes.",
}
"""Message shown after each change, by the code in the URL."""


def admins_only(view: no_role.View) -> no_role.View:
    """Show a page to admins only; show other people the required role."""

    @wraps(view)
    def guarded(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        if not may(console_actor(request), Role.ADMIN):
            return rejected(request, "This page requires the role admin in all pools.")
        return view(request, *args, **kwargs)

    return guarded


def rejected(request: HttpRequest, why: str) -> HttpResponse:
    """Return the page that names the missing role."""
    return no_role.rejected(request, "Access", why)


def access_page(request: HttpRequest, tab: str, heading: str, *, status: int = 200, **page: Any) -> HttpResponse:
    """Render one tab; `heading` states its finding."""
    is_admin = role_in(request.user) == Role.ADMIN
    context = shell_context(
        request,
        page="Access",
        tab=tab,
        tabs=TABS if is_admin else TABS[-2:],
        page_title=heading,
        said=SAID.get(request.GET.get("said", ""), ""),
        **page,
    )
    return render(request, f"access/{tab}.html", context, status=status)
