"""The People page: roles by pool, and whether each person can sign in."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any

from django.db.models import Count, Q
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods, require_POST

from controlplane.access import invitations
from controlplane.access import people as service
from controlplane.access.models.person import Person
from controlplane.access.models.sign_in_policy import FactorRule
from controlplane.access.resources import PEOPLE
from controlplane.access.second_factors import CODES, TITLES, sign_in_policy
from controlplane.access.second_factors import reset_factors as service_factors
from controlplane.access.sessions import sign_out_everywhere
from controlplane.fleet.models.pool import Pool
from controlplane.platform.actor import Actor
from controlplane.platform.field_problems import InvalidFieldsError
from controlplane.platform.format import count, relative
from controlplane.platform.role import ALL_POOLS, Role
from web.access.page import SAID, TABS, admins_only
from web.access.session_record import keep_signed_in
from web.shell.console_request import console_actor, go, why
from web.shell.form_field import PASSWORD, FieldOption, FormField
from web.shell.no_role import admin_accounts
from web.shell.object_pages import ObjectPages, Options

ADDRESS = "/access/people"
MAX_POOLS = 1000
_PASSWORD = FormField("password", "Password", PASSWORD, limit=service.MAX_PASSWORD, autocomplete="new-password")
_SAID = SAID | {"created": "Added. Create an invitation link below, so that the person can set a password."}


def _with_accounts(people: Any) -> Any:
    open_sessions = Count("console_sessions", filter=Q(console_sessions__ended_at=None), distinct=True)
    related = people.prefetch_related("socialaccount_set", "authenticator_set")
    return related.annotate(sessions=open_sessions).order_by("-is_active", "username")


def _facts(person: Any) -> list[tuple[str, str]]:
    account = next(iter(person.socialaccount_set.all()), None)
    factors = [TITLES[factor.type] for factor in person.authenticator_set.all() if factor.type != CODES]
    ways = [*(["password"] if person.has_usable_password() else []), *([account.provider] if account else [])]
    has_role = person.is_superuser or person.roles or person.group_roles
    since = (timezone.now() - person.last_login).total_seconds() if person.last_login else None
    return [
        ("Roles of groups", ", ".join(person.group_roles) or "none"),
        ("Sees", "every pool" if person.is_superuser else "by roles" if has_role else "no pool: no role"),
        ("Signs in by", ", ".join(ways) or "nothing yet: send an invitation link"),
        ("Second factor", ", ".join(factors) or "none"),
        ("Open sessions", str(person.sessions)),
        ("Signed in last", "never" if since is None else relative(since)),
    ]


def _role_words(person: Any) -> str:
    """Return the roles that hold without the provider's groups."""
    if person.is_superuser:
        return "admin in all pools"
    roles = [role.partition("=") for role in person.roles]
    return ", ".join(f"{role} in {'all pools' if pool == ALL_POOLS else pool}" for pool, _, role in roles) or "none"


def _roles() -> Options:
    everywhere = [FieldOption(f"{ALL_POOLS}={role.value}", f"{role.value} in all pools", role.label) for role in Role]
    return {
        "roles": [
            *everywhere,
            *(
                FieldOption(f"{slug}={role.value}", f"{role.value} in {slug}")
                for slug in Pool.objects.order_by("slug").values_list("slug", flat=True)[:MAX_POOLS]
                for role in (Role.VIEWER, Role.OPERATOR)
            ),
        ]
    }


def _besides(request: HttpRequest) -> dict[str, Any]:
    everyone, admins = Person.objects.count(), admin_accounts().count()
    return {
        "page_title": f"{count(everyone, 'person', 'people')}, {count(admins, 'admin')}",
        "policy": sign_in_policy() if "policy" in request.GET else None,
        "factor_rules": FactorRule.choices,
        "password_field": _PASSWORD,
    }


def _account(_actor: Actor, person: Any) -> Mapping[str, Any]:
    return {
        "account": next(iter(person.socialaccount_set.all()), None),
        "has_factors": any(factor.type != CODES for factor in person.authenticator_set.all()),
    }


_PAGES = ObjectPages(
    PEOPLE,
    "person,people",
    "Access",
    ADDRESS,
    "access/people.html",
    lambda _actor: TABS,
    "people",
    _SAID,
    more=_facts,
    written={"Roles": _role_words},
    options=_roles,
    besides=_besides,
    named="person",
    search=("username__icontains",),
    counted=_with_accounts,
    context=_account,
)
people = require_http_methods(["GET", "HEAD", "POST"])(admins_only(_PAGES.view))
Change = Callable[[HttpRequest, Person], str | HttpResponse]


def on_person(change: Change) -> Callable[[HttpRequest, int], HttpResponse]:
    """Apply a change to the person and redirect with the code of the message to show, unless it returns a page.

    422 if a field is invalid.
    """

    @require_POST
    @admins_only
    @wraps(change)
    def view(request: HttpRequest, person_id: int) -> HttpResponse:
        person = get_object_or_404(Person, pk=person_id)
        try:
            said = change(request, person)
        except InvalidFieldsError as error:
            return _PAGES.rendered(request, opened=person, problems=error.problems, keep_typed=False, status=422)
        if isinstance(said, HttpResponse):
            return said
        return go(ADDRESS, person=person.username, said=said)

    return view


@on_person
def invite(request: HttpRequest, person: Person) -> HttpResponse:
    """Show a new invitation link, once."""
    code = invitations.invite(person, actor=console_actor(request), why=why(request))
    link = request.build_absolute_uri(reverse("login-invitation", args=[code]))
    once = {"invitation": link, "invitation_until": timezone.now() + invitations.LASTS}
    return _PAGES.rendered(request, opened=person, keep_typed=False, once=once)


@sensitive_post_parameters("password")
@on_person
def password(request: HttpRequest, person: Person) -> str:
    """Set the person's password."""
    own = request.session.session_key or "" if person.pk == request.user.pk else ""
    typed = request.POST.get("password", "")
    service.set_password(person, typed, actor=console_actor(request), keep_session=own, why=why(request))
    if own:
        # The session is that of the account.
        keep_signed_in(request, person.user_ptr)
    return "password-set"


@on_person
def reset_factors(request: HttpRequest, person: Person) -> str:
    """Remove the second factors of a person who has lost them."""
    return "factors-reset" if service_factors(person, actor=console_actor(request), why=why(request)) else "nothing"


@on_person
def sign_out_person(request: HttpRequest, person: Person) -> str:
    """End all sessions of the person."""
    ended = sign_out_everywhere(person, actor=console_actor(request), why=why(request))
    return "signed-out" if ended else "nothing"
