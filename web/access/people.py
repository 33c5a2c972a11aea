"""The People page: roles per pool, and whether each person can sign in."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from functools import wraps
from typing import Any

from django.contrib.auth.models import User
from django.db.models import Count, Q
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from django.utils import timezone
from django.views.decorators.debug import sensitive_post_parameters
from django.views.decorators.http import require_http_methods, require_POST

from controlplane.access import people as service
from controlplane.access.models.sign_in_policy import FactorRule
from controlplane.access.second_factors import CODES, TITLES, sign_in_policy
from controlplane.access.second_factors import reset_factors as service_factors
from controlplane.access.sessions import sign_out_everywhere
from controlplane.fleet.models.pool import Pool
from controlplane.platform.field_problems import FieldProblem, InvalidFieldsError, problem
from controlplane.platform.format import moment, one_line
from controlplane.platform.role import ALL_POOLS, Role
from web.access.key_form import pool_options
from web.access.page import PAGE_ROWS, access_page, admins_only
from web.access.session_record import keep_signed_in
from web.shell.console_request import asked, console_actor, go, kept, listed, sent, typed_fields, why
from web.shell.form_field import CHECKS, PASSWORD, SELECT, FieldOption, FormField, filled, general_problem

ADDRESS = "/access/people"
MAX_POOLS = 1000
_PASSWORD = FormField("password", "Password", PASSWORD, limit=service.MAX_PASSWORD, autocomplete="new-password")
_WHERE = "None checked: no role yet. An admin's role covers all pools."
_WHY = FormField("why", "Why", help="Optional; for the audit.", limit=200)


@sensitive_post_parameters("password")
@require_http_methods(["GET", "HEAD", "POST"])
@admins_only
def people(request: HttpRequest) -> HttpResponse:
    """List the people; on POST add a person."""
    if request.method != "POST":
        return _page(request)
    chosen, role = request.POST.getlist("pools"), _role(request)
    pools, everywhere = _pools(chosen), ALL_POOLS in chosen
    try:
        user = service.create_person(
            request.POST.get("username", ""),
            request.POST.get("password") or None,
            actor=console_actor(request),
            role=role,
            pools=pools,
            everywhere=everywhere,
            why=why(request),
        )
    except InvalidFieldsError as error:
        return _page(request, creating=True, problems=error.problems, status=422)
    dropped = role not in (None, Role.ADMIN) and not (pools or everywhere)
    return go(ADDRESS, person=user.username, said="person-without-pool" if dropped else "person-created")


Change = Callable[[HttpRequest, User], str]


def on_person(change: Change) -> Callable[[HttpRequest, int], HttpResponse]:
    """Apply a change to the person and redirect with the code of the message to show; 422 if a field is invalid."""

    @require_POST
    @admins_only
    @wraps(change)
    def view(request: HttpRequest, person_id: int) -> HttpResponse:
        user = get_object_or_404(User, pk=person_id)
        try:
            said = change(request, user)
        except InvalidFieldsError as error:
            return _page(request, opened=user, problems=error.problems, status=422)
        return go(ADDRESS, person=user.username, said=said)

    return view


@on_person
def grant(request: HttpRequest, user: User) -> str:
    """Grant a role in all pools or in one pool."""
    role = _role(request)
    if role is None:
        raise problem("role", "Choose a role.")
    changed = service.grant_role(user, role, actor=console_actor(request), pool=_pool(request), why=why(request))
    return "role-granted" if changed else "nothing"


@on_person
def withdraw(request: HttpRequest, user: User) -> str:
    """Remove a role."""
    changed = service.withdraw_role(user, actor=console_actor(request), pool=_pool(request), why=why(request))
    return "role-withdrawn" if changed else "nothing"


@on_person
def activity(request: HttpRequest, user: User) -> str:
    """Deactivate or reactivate the account."""
    active = request.POST.get("active") == "1"
    changed = service.set_active(user, active, actor=console_actor(request), why=why(request))
    return ("activated" if active else "deactivated") if changed else "nothing"


@sensitive_post_parameters("password")
@on_person
def password(request: HttpRequest, user: User) -> str:
    """Set the person's password."""
    own = request.session.session_key or "" if user.pk == request.user.pk else ""
    typed = request.POST.get("password", "")
    service.set_password(user, typed, actor=console_actor(request), keep_session=own, why=why(request))
    if own:
        keep_signed_in(request, user)
    return "password-set"


@on_person
def reset_factors(request: HttpRequest, user: User) -> str:
    """Remove the second factors of a person who has lost them."""
    return "factors-reset" if service_factors(user, actor=console_actor(request), why=why(request)) else "nothing"


@on_person
def sign_out_person(request: HttpRequest, user: User) -> str:
    """End all sessions of the person."""
    return "signed-out" if sign_out_everywhere(user, actor=console_actor(request), why=why(request)) else "nothing"


def _page(
    request: HttpRequest,
    *,
    opened: User | None = None,
    creating: bool = False,
    problems: Sequence[FieldProblem] = (),
    status: int = 200,
) -> HttpResponse:
    now = timezone.now()
    people = _people().order_by("-is_active", "username")
    wanted = asked(request, "q", 150)
    if wanted:
        people = people.filter(username__icontains=wanted)
    page = listed(request, people, PAGE_ROWS)
    if opened is None and (name := asked(request, "person")):
        opened = _people().filter(username=name).first()
    elif opened is not None:
        opened = _people().get(pk=opened.pk)
    creating = creating or (request.method != "POST" and "new" in request.GET)
    pools = list(Pool.objects.order_by("slug")[:MAX_POOLS]) if creating or opened else []
    typed = typed_fields(request)
    fields = filled(_creation_fields(pools), typed, problems) if creating else []
    return access_page(
        request,
        "people",
        status=status,
        rows=[_row(user, now) for user in page.object_list],
        paging=page,
        wanted=wanted,
        keep=kept(q=wanted),
        creating=creating,
        opened=_row(opened, now) if opened else None,
        pools=pools,
        roles=list(Role),
        fields=fields,
        password_field=filled([_PASSWORD], {}, problems)[0],
        problem=general_problem([*fields, _PASSWORD], problems),
        policy=sign_in_policy() if "policy" in request.GET else None,
        factor_rules=FactorRule.choices,
        stopping=opened is not None and "deactivate" in request.GET,
    )


def _people() -> Any:
    open_sessions = Count("console_sessions", filter=Q(console_sessions__ended_at=None), distinct=True)
    related = ("role_grants__pool", "socialaccount_set", "authenticator_set")
    return User.objects.annotate(sessions=open_sessions).prefetch_related(*related)


def _row(user: Any, now: datetime) -> dict[str, Any]:
    """Return what the list and the drawer show about a person."""
    grants = sorted(user.role_grants.all(), key=lambda grant: (grant.pool is not None, str(grant.pool)))
    words = [f"{grant.role} in {grant.pool.slug}" if grant.pool else f"{grant.role} everywhere" for grant in grants]
    account = next(iter(user.socialaccount_set.all()), None)
    factors = [TITLES[factor.type] for factor in user.authenticator_set.all() if factor.type != CODES]
    if user.is_superuser:
        words = ["admin everywhere (superuser)"]
    can_sign_in = user.has_usable_password() or account is not None
    state = "deactivated" if not user.is_active else "active" if can_sign_in else "no password"
    return {
        "user": user,
        "grants": grants,
        "roles": words,
        "state": state,
        "account": account,
        "factors": factors,
        "shape": {"active": "serving", "deactivated": "maintenance"}.get(state, "hot"),
        "signed_in": moment(user.last_login, now),
        "joined": moment(user.date_joined, now),
    }


def _creation_fields(pools: Sequence[Pool]) -> list[FormField]:
    roles = tuple(FieldOption(role.value, role.value, role.label) for role in Role)
    in_pools = pool_options({pool.slug: pool.name for pool in pools})
    return [
        FormField("username", "Name", help="Letters, digits and @ . + - _", required=True, limit=150),
        FormField(
            "password",
            "Password",
            PASSWORD,
            help="At least 8 characters, not a common one. Empty: the person cannot sign in yet.",
            limit=service.MAX_PASSWORD,
            autocomplete="new-password",
        ),
        FormField(
            "role", "Role", SELECT, options=(FieldOption("", "no role yet"), *roles), chosen=(Role.VIEWER.value,)
        ),
        FormField("pools", "In pools", CHECKS, help=_WHERE, options=in_pools, chosen=()),
        _WHY,
    ]


def _pools(slugs: Sequence[str]) -> list[Pool]:
    return list(Pool.objects.filter(slug__in=[one_line(slug) for slug in slugs[:MAX_POOLS]]))


def _pool(request: HttpRequest) -> Pool | None:
    """Return the selected pool, None for all pools. Raise InvalidFieldsError if nothing is selected."""
    slug = sent(request, "pool")
    if not slug:
        raise problem("", "Choose where the role applies.")
    return None if slug == ALL_POOLS else get_object_or_404(Pool, slug=slug)


def _role(request: HttpRequest) -> Role | None:
    text = sent(request, "role")
    return Role(text) if text in Role.values else None
