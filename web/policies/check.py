"""The editor script's requests while a person types: a check with its diff, and the current state."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_POST, require_safe

from controlplane.platform.format import moment_of
from web.policies.access import opened, rejected, version_named, version_number
from web.policies.editor.draft_form import form_as_typed
from web.policies.rollout import reach_of
from web.policies.words import author_of


@require_POST
def check(request: HttpRequest, slug: str) -> HttpResponse:
    """Return the summary and the diff of the typed document as page fragments; nothing is stored."""
    policy_state = opened(request, slug)
    if not policy_state.may_draft:
        return rejected(request, policy_state)
    form = form_as_typed(policy_state.live, version_named(policy_state, request.POST.get("draft")), request.POST)
    return render(request, "policies/check.html", {"form": form, "state": policy_state})


@require_safe
def state(request: HttpRequest, slug: str) -> JsonResponse:
    """Return which version is live, who published it, and how far the requested version has spread."""
    policy_state = opened(request, slug)
    live = policy_state.live
    number = version_number(request.GET.get("version"))
    return JsonResponse(
        {
            "live": policy_state.live_number,
            "author": author_of(live) if live else "",
            "ago": moment_of(live.published_at, timezone.now()).ago if live and live.published_at else "",
            "reach": reach_of(policy_state, number) if number is not None else None,
        }
    )
