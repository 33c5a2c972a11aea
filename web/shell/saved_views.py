"""The menu of saved views on pages with filters."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlencode

from django.http import HttpRequest

from controlplane.access.models.saved_view import MAX_NAME
from controlplane.access.saved_views import PATHS, visible_views
from controlplane.platform.role import Role
from controlplane.platform.roles import may_somewhere
from web.shell.console_request import console_actor

_MOMENTARY = frozenset(("before", "after", "event", "page", "said", "fragment", "new", "delete"))
"""Parameters that are no filter: the place in the list, and what is open."""


def has_views(request: HttpRequest) -> bool:
    """Return whether people can save views of the page."""
    return request.path in PATHS


def views_menu(request: HttpRequest) -> dict[str, Any]:
    """Return what the menu shows on a page that has views."""
    actor = console_actor(request)
    given = [(name, value) for name, values in request.GET.lists() for value in values]
    return {
        "rows": visible_views(actor, path=request.path),
        "path": request.path,
        "query": urlencode([(name, value) for name, value in given if value and name not in _MOMENTARY]),
        "may_share": may_somewhere(actor, Role.OPERATOR),
        "name_limit": MAX_NAME,
    }
