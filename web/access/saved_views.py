"""Saves, renames, shares, and deletes people's views of pages."""

from __future__ import annotations

from typing import cast

from django.contrib.auth.models import User
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.views.decorators.http import require_POST

from controlplane.access.models.saved_view import MAX_NAME, SavedView
from controlplane.access.saved_views import delete_view, save_view, visible_views
from controlplane.platform.format import one_line
from web.access.preferences import ADDRESS
from web.shell.console_request import console_actor, go, sent
from web.shell.frame import shell_context
from web.shell.rejection import FormRejection, attempted


@require_POST
def save(request: HttpRequest, view_id: int | None = None) -> HttpResponse:
    """Store a new view and return to its page; with an id, change or delete a view."""
    actor, deleting = console_actor(request), sent(request, "do") == "delete"
    if view_id is None:
        owner, query = cast("User", request.user), request.POST.get("query", "")
        view = SavedView(owner=owner, path=sent(request, "path"), query=query)
    else:
        view = get_object_or_404(SavedView, pk__in=[one.pk for one in visible_views(actor, pk=view_id)])
    if deleting and view_id is not None:
        done = attempted(lambda: delete_view(view, actor=actor))
    else:
        view.name, view.shared = one_line(sent(request, "name", MAX_NAME + 1)), "shared" in request.POST
        done = attempted(lambda: save_view(view, actor=actor))
    if isinstance(done, FormRejection):
        context = shell_context(request, page="Access", why=done.words)
        return render(request, "shell/rejected.html", context, status=done.status)
    return go(view.address) if view_id is None else go(ADDRESS, said="deleted" if deleting else "changed")
