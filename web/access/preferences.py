"""How the console shows times and colors to a person: the page of these settings, and the middleware for times."""

from __future__ import annotations

import zoneinfo
from collections.abc import Callable, Sequence
from typing import Any

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.views.decorators.http import require_http_methods

from controlplane.access.models.person import Clock, Person
from controlplane.access.people import PREFERENCES, set_preferences, time_zones
from controlplane.access.saved_views import visible_views
from controlplane.platform.field_problems import FieldProblem, InvalidFieldsError
from controlplane.platform.format import clock_hours, shown_times, zone_name
from controlplane.platform.role import Role
from controlplane.platform.roles import may
from web.access.page import access_page
from web.shell.console_request import console_actor, go, typed_fields
from web.shell.form_field import FieldOption, filled, general_problem
from web.shell.frame import THEME_COOKIE
from web.shell.resource_form import form_fields, typed_values

ADDRESS = "/access/you/settings"
ZONE_COOKIE = "time_zone"
"""The browser's zone, which frontend/shell/time_zone.js sets."""
YEAR_S = 31_536_000
Answer = Callable[[HttpRequest], HttpResponse]


def show_own_times(get_response: Answer) -> Answer:
    """Return the middleware that writes the times of pages as their person prefers; it follows authentication."""

    def respond(request: HttpRequest) -> HttpResponse:
        # Programs get UTC.
        if request.path.startswith("/api/"):
            return get_response(request)
        # Without a session there is nothing to read, even while the database is away.
        known = settings.SESSION_COOKIE_NAME in request.COOKIES and request.user.is_authenticated
        person = getattr(request.user, "person", None) if known else None
        wanted = (getattr(person, "time_zone", ""), request.COOKIES.get(ZONE_COOKIE, ""))
        zone = zoneinfo.ZoneInfo(next((name for name in wanted if name in time_zones()), "UTC"))
        with shown_times(zone, twelve_hours=getattr(person, "clock", "") == Clock.HOURS_12):
            return get_response(request)

    return respond


def times(_request: HttpRequest) -> dict[str, Any]:
    """Return what templates need to know about times."""
    return {"time_zone": zone_name(), "clock_hours": clock_hours()}


@require_http_methods(["GET", "HEAD", "POST"])
def own_settings(request: HttpRequest) -> HttpResponse:
    """Show the person's settings; on POST store them."""
    person, actor = Person.objects.get(pk=request.user.pk), console_actor(request)
    problems: Sequence[FieldProblem] = ()
    if request.method == "POST":
        values, problems = typed_values(PREFERENCES, request.POST)
        try:
            if not problems:
                return _saved(set_preferences(person, values))
        except InvalidFieldsError as error:
            problems = error.problems
    zones = [FieldOption("", "The browser’s"), *(FieldOption(name, name) for name in sorted(time_zones()))]
    fields = filled(form_fields(PREFERENCES, person, {"time_zone": zones}), typed_fields(request), problems)
    problem, own_views = general_problem(fields, problems), visible_views(actor)
    heading = f"You see times in {zone_name()}, {clock_hours()}-hour clock"
    page = {"fields": fields, "problem": problem, "own_views": own_views, "is_admin": may(actor, Role.ADMIN)}
    return access_page(request, "settings", heading, status=422 if problems else 200, **page)


def _saved(person: Person) -> HttpResponse:
    answer = go(ADDRESS, said="settings-saved")
    # This browser may have a choice of its own.
    if person.theme:
        answer.set_cookie(THEME_COOKIE, person.theme, max_age=YEAR_S, samesite="Lax")
    else:
        answer.delete_cookie(THEME_COOKIE, samesite="Lax")
    return answer
