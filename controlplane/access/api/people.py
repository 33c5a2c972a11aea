"""`/api/v1/people`."""

from __future__ import annotations

from controlplane.access.models.person import Person
from controlplane.access.people import MAX_PASSWORD
from controlplane.access.resources import PEOPLE
from controlplane.platform.api.listing import contains, truth
from controlplane.platform.api.resource_bodies import new_body, object_views
from controlplane.platform.api.strict_fields import Text
from controlplane.platform.api.views import by_method

_HELP = "Empty: the person cannot sign in with a password until an admin sets one. No response contains it."
_password = Text(max_length=MAX_PASSWORD, allow_blank=True, default="", write_only=True, help_text=_HELP)

PeopleView, OnePerson = object_views(
    PEOPLE,
    "person,people",
    ("username", contains("username", "Part of the name.")),
    ("is_active", truth("is_active", "Whether the person may sign in.")),
)
PeopleView.bodies = by_method(POST=new_body(Person, password=_password))
