"""What the pages under Access share: tabs, and who may open them."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any
from urllib.parse import urlencode

from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import render

from controlplane.platform.actor import CONSOLE, Actor
from controlplane.platform.one_line import one_line
from controlplane.platform.request_actor import actor_of
from controlplane.platform.role import Role
from controlplane.platform.roles import may, role_in
from web.shell.frame import shell_context

PAGE_ROWS = 50
TABS = (
    ("keys", "API keys", "/access/keys"),
    ("people", "People", "/access/people"),
    ("sessions", "Sessions", "/access/sessions"),
    ("tenants", "Tenants", "/access/tenants"),
    ("you", "You", "/access/you"),
)
SAID = {
    "key-changed": "Key changed; gateways apply it within a second.",
    "key-revoked": "Key revoked. Requests with it get 401 within 5 s.",
    "person-created": "The person can sign in.",
    "role-granted": "Role granted, effective with the next request.",
    "role-withdrawn": "Role withdrawn, effective with the next request.",
    "deactivated": "Account deactivated; its sessions have ended.",
    "activated": "Account activated.",
    "password-set": "Password set; sessions opened with the old one have ended.",
    "signed-out": "Signed out. Open pages close within 5 s.",
    "tenant-created": "Tenant added.",
    "tenant-changed": "Tenant changed.",
    "tenant-deleted": "Tenant deleted.",
    "nothing": "No changes.",
}
"""What the page after a change says; the address carries the code."""

View = Callable[..., HttpResponse]


def console_actor(request: HttpRequest) -> Actor:
    """Return who asks."""
    return actor_of(request, CONSOLE)


def admins_only(view: View) -> View:
    """Show a page to admins alone; others read which role they would need."""

    @wraps(view)
    def guarded(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        if not may(console_actor(request), Role.ADMIN):
            return refused(request, "This requires the role admin; ask an admin.")
        return view(request, *args, **kwargs)

    return guarded


def refused(request: HttpRequest, why: str) -> HttpResponse:
    """Return the page that says what is missing."""
    return render(request, "access/refused.html", shell_context(request, page="Access", why=why), status=403)


def access_page(request: HttpRequest, tab: str, *, status: int = 200, **page: Any) -> HttpResponse:
    """Render one tab."""
    is_admin = role_in(request.user) == Role.ADMIN
    context = shell_context(
        request,
        page="Access",
        tab=tab,
        tabs=TABS if is_admin else TABS[-1:],
        said=SAID.get(request.GET.get("said", ""), ""),
        **page,
    )
    return render(request, f"access/{tab}.html", context, status=status)


def go(address: str, **parameters: str) -> HttpResponse:
    """Return the redirect after a change."""
    query = urlencode({name: value for name, value in parameters.items() if value})
    answer = HttpResponseRedirect(f"{address}?{query}" if query else address)
    answer.status_code = 303
    return answer


def kept(**parameters: str) -> str:
    """Return the parameters that are set as the start of a query, to which a link adds its own."""
    query = urlencode({name: value for name, value in parameters.items() if value})
    return f"{query}&" if query else ""


def asked(request: HttpRequest, name: str, limit: int = 200) -> str:
    """Return a query parameter as one short line; no database takes a NUL."""
    return one_line(request.GET.get(name, ""))[:limit]


def sent(request: HttpRequest, name: str, limit: int = 400) -> str:
    """Return a field of a form as one line; longer than `limit` it is cut, and the field's own limit says so."""
    return one_line(request.POST.get(name, ""))[:limit]


def why(request: HttpRequest) -> str:
    """Return the reason that was typed for the audit."""
    return sent(request, "why", 200)
