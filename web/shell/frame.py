"""The parts that all console pages share: theme, navigation, version."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from typing import Any

from django.conf import settings
from django.contrib.staticfiles import finders
from django.http import HttpRequest

from controlplane.incidents.notices import mark_of, open_notices
from controlplane.platform.environment import BASE_DIR
from web.shell.console_request import console_actor

THEMES = ("dark", "light")
THEME_COOKIE = "theme"
SCRIPT = "dist/console.js"


@dataclass(frozen=True, slots=True)
class NavigationItem:
    """One page in the navigation on the left; `icon` is a symbol of templates/shell/icons.svg."""

    name: str
    address: str
    icon: str


NAVIGATION = (
    (
        NavigationItem("Fleet", "/", "fleet"),
        NavigationItem("Incidents", "/incidents", "incidents"),
        NavigationItem("Decisions", "/requests", "decisions"),
        NavigationItem("Cache locality", "/cache", "cache-locality"),
        NavigationItem("Policies", "/policies", "policies"),
        NavigationItem("Usage", "/usage", "usage"),
        NavigationItem("Trials", "/trials", "trials"),
        NavigationItem("Automation", "/automation", "automation"),
    ),
    (
        NavigationItem("Topology", "/engines", "topology"),
        NavigationItem("Services", "/engines/services", "services"),
        NavigationItem("Regions", "/regions", "regions"),
        NavigationItem("Sovereignty", "/regions/sovereignty", "sovereignty"),
        NavigationItem("Capacity", "/regions/capacity", "capacity"),
        NavigationItem("KV store", "/cache/store", "kv"),
        NavigationItem("Jobs", "/jobs", "jobs"),
    ),
    (NavigationItem("Audit", "/audit", "audit"), NavigationItem("Access", "/access", "access")),
)
"""Groups of pages. A page is listed here once it exists."""


def shell_context(request: HttpRequest, **page: Any) -> dict[str, Any]:
    """Return a page's template context: the shell's part and the page's own part."""
    theme = request.COOKIES.get(THEME_COOKIE, "")
    # The login page has no person, and an error page may have no user at all.
    known = getattr(getattr(request, "user", None), "is_authenticated", False)
    open_ones = open_notices(console_actor(request)) if known else ()
    return {
        # The stored choice is rendered by the server, so that the first paint has the right colours.
        "theme": theme if theme in THEMES else "",
        "navigation": NAVIGATION,
        "open_incidents": len(open_ones),
        "tab_mark": mark_of(open_ones[0]) if open_ones else "",
        "version": program_version(),
        "built": console_is_built(),
        **page,
    }


@cache
def program_version() -> str:
    """Return the program's version from pyproject.toml."""
    project = tomllib.loads((BASE_DIR / "pyproject.toml").read_text())
    return str(project["project"]["version"])


def console_is_built() -> bool:
    """Return whether `npm run build` has created the scripts and styles that the pages load."""
    return settings.STATIC_ROOT is not None or finders.find(SCRIPT) is not None
