"""The parts that all console pages share: theme, navigation, version."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from typing import Any

from django.conf import settings
from django.contrib.staticfiles import finders
from django.http import HttpRequest
from django.utils.functional import SimpleLazyObject

from controlplane.advice.proposals import PROPOSALS, TRIALS, attention_counts
from controlplane.incidents.notices import mark_of, open_notices
from controlplane.platform.environment import BASE_DIR
from web.shell.console_request import console_actor
from web.shell.saved_views import has_views, views_menu

THEMES = ("dark", "light")
THEME_COOKIE = "theme"
SCRIPT = "dist/console.js"


Tab = tuple[str, str, str]
"""The key, name, and address of a tab."""


@dataclass(frozen=True, slots=True)
class NavigationItem:
    """One item in the navigation on the left; `icon` is a symbol of templates/shell/icons.svg."""

    name: str
    address: str
    icon: str
    key: str
    """Opens the page after G."""
    tabs: tuple[Tab, ...] = ()
    """The pages below the item; the item opens the first."""
    also: str = ""
    """Further words by which the search finds it."""


@dataclass(frozen=True, slots=True)
class NavigationGroup:
    """Items for one kind of work."""

    name: str
    items: tuple[NavigationItem, ...]


NAVIGATION = (
    NavigationGroup(
        "Watch",
        (
            NavigationItem("Fleet", "/", "fleet", "f", also="overview home load"),
            NavigationItem("Incidents", "/incidents", "incidents", "i", also="alerts outages"),
            NavigationItem("Requests", "/requests", "decisions", "r", also="decisions log"),
            NavigationItem("Usage", "/usage", "usage", "s", also="cost money tokens prices budgets limits savings"),
            NavigationItem("Objectives", "/objectives", "objectives", "o", also="slo burn error budget"),
        ),
    ),
    NavigationGroup(
        "Change",
        (
            NavigationItem(
                "Policies",
                "/policies",
                "policies",
                "p",
                (
                    ("policies", "Policies", "/policies"),
                    ("whatif", "What-ifs", "/trials"),
                    ("shadow", "Shadows", "/trials/shadows"),
                    ("canary", "Canaries", "/trials/canaries"),
                    ("recordings", "Recordings", "/trials/recordings"),
                ),
                also="placement order rules settings trials",
            ),
            NavigationItem(
                "Advice",
                "/advice",
                "advice",
                "d",
                (("proposals", "Proposals", "/advice"), ("record", "Record", "/advice/record")),
                also="adviser autopilot",
            ),
            NavigationItem("Automation", "/automation", "automation", "m", also="scaling rebalance health freeze"),
        ),
    ),
    NavigationGroup(
        "Run",
        (
            NavigationItem(
                "Engines",
                "/engines",
                "topology",
                "e",
                (("engines", "Engines", "/engines"), ("services", "Services", "/engines/services")),
                also="pools topology workers models register",
            ),
            NavigationItem(
                "Cache",
                "/cache",
                "kv",
                "c",
                (
                    ("locality", "Locality", "/cache"),
                    ("store", "KV store", "/cache/store"),
                    ("moves", "Moves and advisories", "/cache/moves"),
                    ("agents", "Agents", "/cache/agents"),
                ),
                also="kv prefixes hits eviction",
            ),
            NavigationItem(
                "Regions",
                "/regions",
                "regions",
                "g",
                (
                    ("traffic", "Traffic", "/regions"),
                    ("sovereignty", "Sovereignty", "/regions/sovereignty"),
                    ("capacity", "Capacity", "/regions/capacity"),
                ),
            ),
        ),
    ),
    NavigationGroup(
        "Settings",
        (
            NavigationItem(
                "Access",
                "/access",
                "access",
                "a",
                also="people users roles tenants keys sign-in account settings theme password",
            ),
            NavigationItem(
                "Notifications",
                "/notifications",
                "notifications",
                "n",
                also="alerts channels routes silences rules slack pagerduty mail webhook",
            ),
            NavigationItem("Audit", "/audit", "audit", "u"),
            NavigationItem("Jobs", "/jobs", "jobs", "j"),
        ),
    ),
)
"""An item is listed here once its page exists."""
ITEMS = tuple(item for group in NAVIGATION for item in group.items)


TOUR = "tour"
"""Name in the session of the tour's step; a person's first sign-in begins the tour, in any browser."""
TOUR_PAGES = {"1": "/", "2": "/requests", "3": "/policies", "4": "/engines"}
"""Step of the tour → the page that it explains."""


def shell_context(request: HttpRequest, **page: Any) -> dict[str, Any]:
    """Return a page's template context: the shell's part and the page's own part.

    `page` is the name of its navigation item. `tab` is the key of its tab; pages below a tab have none.
    """
    # The login page has no person, an error page may have no user at all, and the database may be the error.
    failed = int(page.get("status", 200)) >= 500
    known = not failed and getattr(getattr(request, "user", None), "is_authenticated", False)
    person = getattr(request.user, "person", None) if known else None
    theme = request.COOKIES.get(THEME_COOKIE) or getattr(person, "theme", "")
    item = next((item for item in ITEMS if item.name == page.get("page")), None)
    tabs = page.get("tabs", item.tabs if item is not None else ())
    return {
        # The stored choice is rendered by the server, so that the first paint has the right colours.
        "theme": theme if theme in THEMES else "",
        "navigation": NAVIGATION,
        # Parts of a page that replace themselves do not show it, and ask nothing for it.
        "attention": SimpleLazyObject(lambda: _attention(request)) if known else None,
        "views": SimpleLazyObject(lambda: views_menu(request)) if known and has_views(request) else None,
        "tour": int(request.session.get(TOUR) or 0) if known else 0,
        "tabs": tabs,
        "page_title": next((name for key, name, _ in tabs if key == page.get("tab")), page.get("page")),
        "version": program_version(),
        "built": console_is_built(),
        **page,
    }


def _attention(request: HttpRequest) -> dict[str, Any]:
    """Return the mark in the tab's title, and the count beside navigation items with its words, by icon."""
    actor = console_actor(request)
    incidents, waiting = open_notices(actor), attention_counts(actor)
    counts = {
        "incidents": (len(incidents), "Open incidents"),
        "policies": (waiting[TRIALS], "Running canaries and shadows"),
        "advice": (waiting[PROPOSALS], "Waiting proposals"),
    }
    return {
        "mark": mark_of(incidents[0]) if incidents else "",
        "counts": {icon: (number, words) for icon, (number, words) in counts.items() if number},
    }


@cache
def program_version() -> str:
    """Return the program's version from pyproject.toml."""
    project = tomllib.loads((BASE_DIR / "pyproject.toml").read_text())
    return str(project["project"]["version"])


def console_is_built() -> bool:
    """Return whether `npm run build` has created the scripts and styles that the pages load."""
    return settings.STATIC_ROOT is not None or finders.find(SCRIPT) is not None
