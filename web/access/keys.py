"""The API keys page: create, change, rotate, and revoke keys."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import Any

from django.core.cache import cache
from django.db.models import Count, Q, QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404
from django.utils import timezone
from django.utils.crypto import get_random_string
from django.views.decorators.http import require_http_methods, require_POST

from controlplane.access.api_keys import (
    OVERLAP_H,
    Revoked,
    change_api_key,
    create_api_key,
    end_previous_secret,
    revoke_at_once,
    rotate_api_key,
)
from controlplane.platform.field_problems import FieldProblem, InvalidFieldsError, problem
from controlplane.platform.format import count, moment
from controlplane.platform.models.api_key import ApiKey
from controlplane.platform.models.tenant import Tenant
from controlplane.platform.outage.bus_revocations import bus_revocations
from controlplane.platform.revisions import StaleRevisionError
from controlplane.platform.role import ALL_POOLS, Role
from controlplane.usage.summary import usage_of
from gateway.bus.bus import BusAwayError
from web.access.key_form import CHANGED, change_fields, creation_fields, typed_key
from web.access.page import PAGE_ROWS, access_page, admins_only
from web.shell.console_request import asked, console_actor, go, kept, listed, row_number, sent, typed_fields, why
from web.shell.form_field import filled, general_problem
from web.shell.resource_form import typed_values

ADDRESS = "/access/keys"
SOON = timedelta(days=7)
_FORM_MEMORY_S = 3600
_SAID = {Revoked.STORED: "key-revoked", Revoked.BEFORE: "nothing", Revoked.ON_BUS: "key-revoked-on-bus"}


@require_http_methods(["GET", "HEAD", "POST"])
@admins_only
def keys(request: HttpRequest) -> HttpResponse:
    """List the keys; on POST create one and show its secret text once."""
    if request.method == "POST":
        return _create(request)
    return _page(request)


@require_POST
@admins_only
def change_key(request: HttpRequest, key_id: str) -> HttpResponse:
    """Change a key's name, scopes and limits."""
    key = get_object_or_404(ApiKey.objects.select_related("tenant"), key_id=key_id)
    changes, problems = typed_values(CHANGED, request.POST)
    try:
        if problems:
            raise InvalidFieldsError(problems)
        revision = row_number(request.POST.get("revision"))
        change_api_key(key, changes, actor=console_actor(request), expected=revision, why=why(request))
    except InvalidFieldsError as error:
        return _page(request, opened=key, problems=error.problems, status=422)
    except StaleRevisionError:
        news = FieldProblem(
            "", "Another person changed this key while you edited. Review its current state, then repeat your change."
        )
        key.refresh_from_db()
        return _page(request, opened=key, problems=(news,), keep_typed=False, status=412)
    return go(ADDRESS, key=key_id, said="key-changed")


@require_POST
@admins_only
def rotate_key(request: HttpRequest, key_id: str) -> HttpResponse:
    """Give a key a new secret and show its text once."""
    key = get_object_or_404(ApiKey.objects.select_related("tenant"), key_id=key_id)
    overlap_h = row_number(request.POST.get("overlap_h"), digits=3)
    try:
        if overlap_h is None:
            raise problem("", "Choose how long the previous secret stays valid.")
        with _sent_once(request):
            key, text = rotate_api_key(key, actor=console_actor(request), overlap_h=overlap_h, why=why(request))
    except InvalidFieldsError as error:
        return _page(request, opened=key, problems=error.problems, keep_typed=False, status=422)
    return _page(request, made=key, text=text)


@require_POST
@admins_only
def end_previous(request: HttpRequest, key_id: str) -> HttpResponse:
    """Reject the previous secret of a rotated key at once."""
    key = get_object_or_404(ApiKey, key_id=key_id)
    done = end_previous_secret(key, actor=console_actor(request), why=why(request))
    return go(ADDRESS, key=key_id, said="previous-ended" if done else "nothing")


@require_POST
@admins_only
def revoke_key(request: HttpRequest, key_id: str) -> HttpResponse:
    """Revoke a key permanently."""
    key = get_object_or_404(ApiKey, key_id=key_id)
    try:
        done = revoke_at_once(key, actor=console_actor(request), why=why(request))
    except BusAwayError:
        wrong = FieldProblem("", "Not revoked: the database and the bus are unreachable. Try again.")
        return _page(request, opened=key, problems=(wrong,), status=503)
    return go(ADDRESS, said=_SAID[done])


def _create(request: HttpRequest) -> HttpResponse:
    values, problems = typed_key(request.POST)
    tenant = Tenant.objects.filter(slug=sent(request, "tenant")).first()
    if tenant is None:
        problems.append(FieldProblem("tenant", "Choose a tenant."))
    try:
        if problems or tenant is None:
            raise InvalidFieldsError(problems)
        with _sent_once(request):
            key, text = create_api_key(tenant, actor=console_actor(request), why=why(request), **values)
    except InvalidFieldsError as error:
        return _page(request, creating=True, problems=error.problems, status=422)
    # No redirect, as after other forms: the text is stored nowhere, so this answer alone can show it.
    return _page(request, made=key, text=text)


@contextmanager
def _sent_once(request: HttpRequest) -> Iterator[None]:
    """Raise InvalidFieldsError if this form was already submitted.

    A repeated submission (reload, double click) must not create a second key whose text was never shown.
    """
    form_id = request.POST.get("form_id", "")[:64] or get_random_string(24)
    name = f"key-form:{request.user.pk}:{form_id}"
    if not cache.add(name, value=True, timeout=_FORM_MEMORY_S):
        raise problem("", "This form was already submitted, and its key was shown. Open a new form for another key.")
    try:
        yield
    except InvalidFieldsError:
        cache.delete(name)
        raise


def _page(
    request: HttpRequest,
    *,
    opened: ApiKey | None = None,
    creating: bool = False,
    made: ApiKey | None = None,
    text: str = "",
    problems: tuple[FieldProblem, ...] = (),
    keep_typed: bool = True,
    status: int = 200,
) -> HttpResponse:
    now = timezone.now()
    wanted, state = asked(request, "q", 120), request.GET.get("state", "")
    page = listed(request, _matching(wanted, state, now), PAGE_ROWS)
    if opened is None and request.method != "POST" and (key_id := asked(request, "key")):
        opened = ApiKey.objects.select_related("tenant").filter(key_id=key_id).first()
    creating = creating or (request.method != "POST" and "new" in request.GET)
    typed = typed_fields(request) if keep_typed else {}
    fields = creation_fields() if creating else change_fields(opened) if opened else []
    heading, finding = _finding(now)
    return access_page(
        request,
        "keys",
        heading,
        status=status,
        rows=[row(key, now) for key in page.object_list],
        paging=page,
        wanted=wanted,
        keep=kept(q=wanted, state=state),
        finding=finding,
        state=state,
        creating=creating,
        opened=row(opened, now) if opened else None,
        usage=usage_of(console_actor(request), opened.tenant.slug, opened.key_id) if opened else None,
        owner_budget=kept(tenant=opened.tenant.slug, key_id=opened.key_id) if opened else "",
        made=row(made, now) if made else None,
        text=text,
        fields=filled(fields, typed, problems),
        problem=general_problem(fields, problems),
        form_id=get_random_string(24),
        revoking=opened is not None and "revoke" in request.GET,
        rotating=opened is not None and "rotate" in request.GET,
        overlap_h=OVERLAP_H,
    )


def row(key: ApiKey, now: datetime) -> dict[str, Any]:
    """Return what the list and the drawer show about a key."""
    return {
        "key": key,
        "scopes": ", ".join(_manages(key) if scope == "manage" else scope for scope in key.scopes),
        "expires": moment(key.expires_at, now),
        "used": moment(key.last_used_at, now),
        "rotated": moment(key.rotated_at, now),
        "previous_until": moment(key.previous_until, now) if key.accepts_previous(now) else None,
        "previous_used": moment(key.previous_used_at, now),
        "created": moment(key.created_at, now),
        "revoked": moment(key.revoked_at, now),
        "state": state_of(key, now),
        "unstored": key.revoked_at is None and bus_revocations().revokes(key.sha256),
    }


def _manages(key: ApiKey) -> str:
    if key.role == Role.ADMIN or ALL_POOLS in key.pools:
        return f"manage as {key.role} in all pools"
    return f"manage as {key.role} in {', '.join(key.pools) or 'no pool'}"


def state_of(key: ApiKey, now: datetime) -> str:
    """Return the state of a key: revoked, expired, expiring (within SOON), or active."""
    if key.revoked_at is not None or bus_revocations().revokes(key.sha256):
        return "revoked"
    if key.expires_at is None:
        return "active"
    if key.expires_at <= now:
        return "expired"
    return "expiring" if key.expires_at <= now + SOON else "active"


def _finding(now: datetime) -> tuple[str, str]:
    """Return how many keys are active, and which of them need attention."""
    valid = Q(expires_at=None) | Q(expires_at__gt=now)
    in_force = ApiKey.objects.filter(revoked_at=None)
    if unstored := bus_revocations().waiting():
        in_force = in_force.exclude(sha256__in=[item.sha256 for item in unstored])
    counts = in_force.aggregate(
        valid=Count("pk", filter=valid),
        soon=Count("pk", filter=Q(expires_at__gt=now, expires_at__lte=now + SOON)),
        expired=Count("pk", filter=Q(expires_at__lte=now)),
    )
    heading, soon = f"{count(counts['valid'], 'active API key')}", counts["soon"]
    if soon:
        heading += f", {soon:,} {'expires' if soon == 1 else 'expire'} within 7 days"
    expired = f"{count(counts['expired'], 'key has', 'keys have')} expired. " if counts["expired"] else ""
    return heading, f"{expired}Programs send a key with each request. Headway stores only hashes of keys."


def _matching(wanted: str, state: str, now: datetime) -> QuerySet[ApiKey]:
    keys = ApiKey.objects.select_related("tenant").order_by("revoked_at", "tenant__slug", "-created_at")
    if wanted:
        keys = keys.filter(Q(name__icontains=wanted) | Q(prefix__startswith=wanted) | Q(tenant__slug__icontains=wanted))
    if state == "revoked":
        return keys.exclude(revoked_at=None)
    keys = keys.filter(revoked_at=None)
    if state == "expired":
        return keys.filter(expires_at__lte=now)
    return keys.filter(Q(expires_at=None) | Q(expires_at__gt=now))
