"""Pages for people who lack a role: which role, and who can grant it. Without any role, they replace every page."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

from django.contrib.auth.models import User
from django.db.models import Q, QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from controlplane.platform.role import Role
from controlplane.platform.roles import may, may_somewhere
from web.shell.console_request import console_actor
from web.shell.frame import shell_context

ONES_OWN = frozenset({"logout", "access", "access-you", "access-end-others", "access-session-end"})
"""Names of the URLs that everyone can open: the own account and its sessions, and what begins as ONES_OWN_START."""
ONES_OWN_START = ("login", "access-own-")
MAX_NAMED = 5
View = Callable[..., HttpResponse]


class NoRoleMiddleware:
    """Returns a 403 page that names the admins, before any console view runs a query."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self._get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        """Pass the request on; `process_view` decides after the URL is resolved."""
        return self._get_response(request)

    def process_view(self, request: HttpRequest, _view: Any, _args: Any, _kwargs: Any) -> HttpResponse | None:
        """Reject the request unless the person has a role in a pool or the page is their own; the API has its own
        checks.
        """
        match = request.resolver_match
        if match is None or match.route.startswith("api/") or is_own(match.url_name or ""):
            return None
        if not request.user.is_authenticated or may_somewhere(console_actor(request), Role.VIEWER):
            return None
        context = shell_context(request, page="No role", admins=admin_names()) | {"navigation": ()}
        return render(request, "shell/no_role.html", context, status=403)


def lacks_role(request: HttpRequest, page: str, needed: str, back: str) -> HttpResponse:
    """Return a 403 that names the role a form or action requires; `back` is a console URL."""
    context = shell_context(request, page=page, needed=needed, back=back, admins=admin_names())
    return render(request, "shell/no_role.html", context, status=403)


def rejected(request: HttpRequest, page: str, why: str) -> HttpResponse:
    """Return a 403 for a whole page."""
    return render(
        request, "shell/rejected.html", shell_context(request, page=page, why=why, admins=admin_names()), status=403
    )


def needs_all_pools(page: str, why: str) -> Callable[[View], View]:
    """Show a view to people who have a role in all pools; others get a page with the reason `why`."""

    def guard(view: View) -> View:
        @wraps(view)
        def guarded(request: HttpRequest) -> HttpResponse:
            if may(console_actor(request), Role.VIEWER):
                return view(request)
            return rejected(request, page, f"{why} requires a role in all pools.")

        return guarded

    return guard


def is_own(name: str) -> bool:
    """Return whether everyone can open the URL with this name."""
    return name in ONES_OWN or name.startswith(ONES_OWN_START)


def admin_accounts() -> QuerySet[User]:
    """Return the active accounts that can grant roles, by name."""
    is_admin = Q(is_superuser=True) | Q(role_grants__role=Role.ADMIN, role_grants__pool=None)
    return User.objects.filter(is_admin, is_active=True).distinct().order_by("username")


def admin_names() -> list[str]:
    """Return the names of at most MAX_NAMED people who can grant roles."""
    return list(admin_accounts().values_list("username", flat=True)[:MAX_NAMED])
