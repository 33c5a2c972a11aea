"""Saves, renames, shares, and deletes people's views of pages."""

from __future__ import annotations

from typing import cast

from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.shortcuts import get_object_or_404, render
from django.views.decorators.http import require_POST

from controlplane.access.models.saved_view import MAX_NAME, SavedView
from controlplane.access.saved_views import change_view, delete_view, save_view, visible_views
from controlplane.platform.format import one_line
from web.access.preferences import ADDRESS
from web.shell.console_request import console_actor, go, sent
from web.shell.frame import shell_context
from web.shell.rejection import FormRejection, attempted


@require_POST
def save(request: HttpRequest) -> HttpResponse:
    """Store the filters of a page under a name, and return to the page."""
    saved = attempted(
        lambda: save_view(
            cast("User", request.user),
            name=_name(request),
            path=sent(request, "path"),
            query=request.POST.get("query", ""),
            shared="shared" in request.POST,
            actor=console_actor(request),
        )
    )
    if isinstance(saved, FormRejection):
        return _rejected(request, saved)
    answer = HttpResponseRedirect(saved.address)
    # The browser then gets the page, and a reload does not send the form again.
    answer.status_code = 303
    return answer


@require_POST
def change(request: HttpRequest, view_id: int) -> HttpResponse:
    """Rename, share, or delete a view."""
    actor, deleting = console_actor(request), sent(request, "do") == "delete"
    view = get_object_or_404(SavedView, pk__in=[one.pk for one in visible_views(actor) if one.pk == view_id])
    done = attempted(
        lambda: (
            delete_view(view, actor=actor)
            if deleting
            else change_view(view, name=_name(request), shared="shared" in request.POST, actor=actor)
        )
    )
    if isinstance(done, FormRejection):
        return _rejected(request, done)
    return go(ADDRESS, said="deleted" if deleting else "changed")


def _name(request: HttpRequest) -> str:
    return one_line(sent(request, "name", MAX_NAME + 1))


def _rejected(request: HttpRequest, rejection: FormRejection) -> HttpResponse:
    context = shell_context(request, page="Access", why=rejection.words)
    return render(request, "shell/rejected.html", context, status=rejection.status)
