"""Sign-in and sign-out."""

from __future__ import annotations

from django.conf import settings
from django.contrib.auth import authenticate, login, logout
from django.contrib.auth.decorators import login_not_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods, require_POST

from web.access.login_throttle import LoginThrottle, hashing
from web.shell.client_address import client_address
from web.shell.frame import shell_context

MAX_FIELD = 256


@sensitive_post_parameters("password")
@login_not_required
@require_http_methods(["GET", "POST"])
def sign_in(request: HttpRequest) -> HttpResponse:
    """Show the sign-in form; on POST sign in and redirect to `next` if it is a path of this site."""
    target = _safe_next(request)
    if request.user.is_authenticated:
        return redirect(target)
    if request.method == "GET":
        return _form(request, target)
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
    if user is None:
        # The same words for a name that does not exist: they must not reveal who has an account.
        return _form(request, target, name, "Name and password do not match.")
    throttle.succeeded(name, address)
    login(request, user)
    return redirect(target)


@require_POST
def sign_out(request: HttpRequest) -> HttpResponse:
    """End the session and redirect to the sign-in form."""
    logout(request)
    return redirect(settings.LOGOUT_REDIRECT_URL)


def _try_later(request: HttpRequest, target: str, name: str, wait_s: int) -> HttpResponse:
    answer = _form(request, target, name, f"Too many attempts. Try again in {wait_s} s.", status=429)
    answer["Retry-After"] = str(wait_s)
    return answer


def _form(request: HttpRequest, target: str, name: str = "", error: str = "", status: int = 200) -> HttpResponse:
    context = shell_context(request, next=target, name=name, error=error)
    return render(request, "access/login.html", context, status=status)


def _safe_next(request: HttpRequest) -> str:
    """Return the requested page if it belongs to this site, else the Fleet page."""
    wanted = request.POST.get("next") or request.GET.get("next") or ""
    # A link to the login page must not lead to another site.
    allowed = url_has_allowed_host_and_scheme(
        wanted, allowed_hosts={request.get_host()}, require_https=request.is_secure()
    )
    return wanted if allowed else settings.LOGIN_REDIRECT_URL
