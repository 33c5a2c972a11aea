"""The canaries under Experiments: the list, the form that starts one, and the page of each with its verbs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST, require_safe

from controlplane.canaries.look import read_look
from controlplane.models import Canary, Policy, Role
from controlplane.models.canary import CanaryState
from controlplane.services import canaries as service
from controlplane.services.canary_end import CanaryOverError
from controlplane.services.canary_evidence import Evidence, EvidenceMissingError, known_guards, look_at_step
from controlplane.services.canary_evidence import standing as evidence_of
from controlplane.services.control_slices import visible_slices
from controlplane.services.field_problems import InvalidFieldsError, problem
from controlplane.services.policies import StalePolicyError
from controlplane.services.policy_approvals import NotApprovedError
from controlplane.services.policy_problems import InvalidPolicyError
from controlplane.services.policy_reading import PolicyStanding, policies_of, policy_of, ready_engines
from controlplane.services.revisions import StaleRevisionError
from controlplane.services.roles import NotAllowedError, may_somewhere
from planning.documents.guardrail_document import GuardDocument
from web.live.wording import sentence
from web.moments import moment
from web.no_role import lacks_role
from web.pages.access import asked, console_actor, sent, why
from web.pages.canary_form import asked_from, canary_fields
from web.pages.canary_pictures import distribution, late_course
from web.pages.canary_words import (
    STATES,
    figure_lines,
    guard_lines,
    next_words,
    percent_words,
    slice_row,
    step_marks,
    title,
)
from web.pages.policy_access import NEEDS_OPERATOR
from web.pages.policy_questions import word_to_type, wrong_word
from web.pages.trial_page import Refusal, attempted, is_creating, listed, trial_form, trial_page
from web.shell import shell_context

VERBS: dict[str, Callable[..., Canary]] = {
    "step": service.take_step,
    "promote": service.promote,
    "abort": service.abort,
}


@never_cache
@require_safe
def canaries(request: HttpRequest) -> HttpResponse:
    """List the canaries; with `new` beside the form that starts one."""
    return _list(request)


@never_cache
@require_POST
def start(request: HttpRequest) -> HttpResponse:
    """Start a canary and lead to its page."""
    actor = console_actor(request)
    try:
        standing = policy_of(actor, sent(request, "policy"))
    except Policy.DoesNotExist as error:
        raise Http404("No such policy in your pools.") from error
    made = attempted(lambda: _started(request, standing.policy), CanaryOverError)
    if isinstance(made, Refusal):
        return _list(request, standing, made)
    return redirect("canary", key=made.key)


def _started(request: HttpRequest, policy: Policy) -> Canary:
    version, course = asked_from(request.POST, policy)
    try:
        return service.start_canary(version, actor=console_actor(request), why=why(request), **course)
    except InvalidPolicyError as error:
        raise problem("version", str(error)) from error


@never_cache
@require_safe
def canary(request: HttpRequest, key: str) -> HttpResponse:
    """Show one canary; with `fragment` only the part that changes while it runs."""
    return _page(request, key)


@never_cache
@require_POST
def turn(request: HttpRequest, key: str, verb: str) -> HttpResponse:
    """Let it take its next step, promote it or abort it, as somebody saw it."""
    if verb not in VERBS:
        raise Http404("No such verb.")
    actor = console_actor(request)
    found = get_object_or_404(service.visible_canaries(actor), key=key)
    standing = policy_of(actor, found.policy.slug)
    word = word_to_type(standing, ready_engines(standing.pools)) if verb == "promote" else ""
    if standing.may_publish and (wrong := wrong_word(word, sent(request, "confirm"), "promote it")):
        return _page(request, key, problem=wrong, status=422, asked=verb)
    seen = sent(request, "revision", 10)
    more = {"evidence": Evidence.WAIVED} if sent(request, "force") and verb != "abort" else {}
    try:
        expected = int(seen) if seen.isdecimal() and seen.isascii() else 0
        VERBS[verb](found, actor=actor, expected=expected, why=why(request), **more)
    except NotAllowedError as error:
        return _page(request, key, problem=str(error), status=403)
    except InvalidFieldsError as error:
        return _page(request, key, problem=" ".join(each.message for each in error.problems), status=422, asked=verb)
    except EvidenceMissingError as error:
        return _page(request, key, problem=str(error), status=409, asked=verb)
    except (CanaryOverError, StaleRevisionError, StalePolicyError, NotApprovedError, InvalidPolicyError) as error:
        return _page(request, key, problem=f"{error}", status=409)
    return redirect("canary", key=key)


def _page(request: HttpRequest, key: str, *, problem: str = "", status: int = 200, asked: str = "") -> HttpResponse:
    """Show the canary; `asked` is the verb whose question stands open."""
    now, actor = timezone.now(), console_actor(request)
    found = get_object_or_404(service.visible_canaries(actor), key=key)
    # What an earlier step came to says nothing of the one that runs.
    look = look_at_step(found) if found.running else read_look(found.look)
    evidence = evidence_of(found, now)
    standing = policy_of(actor, found.policy.slug)
    limits = msgspec.convert(found.guards, GuardDocument)
    shape, word = STATES[CanaryState(found.state)]
    context = shell_context(
        request,
        page="Experiments",
        canary=found,
        title=title(found),
        shape=shape,
        state_word=word,
        steps=step_marks(found),
        next_share=percent_words(found.steps[found.step + 1]) if found.step + 1 < len(found.steps) else "",
        pools=[pool.slug for pool in standing.visible],
        started=moment(found.started_at, now),
        ended=moment(found.ended_at, now) if found.ended_at else None,
        step_at=moment(found.step_at, now),
        may_control=standing.may_publish,
        untried=service.untried(found.version, found.against),
        look=look,
        reason=sentence(found.reason),
        word=word_to_type(standing, ready_engines(standing.pools)),
        problem=problem,
        asked=asked,
        evidence=evidence,
        next_words=next_words(evidence),
        **(
            {
                "reasons": [sentence(each.text) for each in look.reasons],
                "figures": figure_lines(look),
                "guards": guard_lines(look, limits, known_guards(look, limits, found.step_at)),
                "picture": distribution(look),
                "course": late_course(look),
            }
            if look is not None
            else {}
        ),
    )
    part = "web/canary_live.html" if "fragment" in request.GET else "web/canary.html"
    return render(request, part, context, status=status)


def _list(request: HttpRequest, standing: PolicyStanding | None = None, refusal: Refusal | None = None) -> HttpResponse:
    now, actor = timezone.now(), console_actor(request)
    known = policies_of(actor)
    chosen = standing or _chosen(known, asked(request, "policy"))
    offered = [each for each in known if each.may_publish]
    if is_creating(request) and not (chosen.may_publish if chosen else may_somewhere(actor, Role.OPERATOR)):
        return lacks_role(request, "Experiments", NEEDS_OPERATOR, reverse("canaries"))
    page = listed(request, service.visible_canaries(actor))
    rows = [
        {
            "canary": each,
            "shape": STATES[CanaryState(each.state)][0],
            "word": STATES[CanaryState(each.state)][1],
            "share": percent_words(each.share),
            "at": moment(each.started_at, now),
        }
        for each in page.object_list
    ]
    slices = [slice_row(each, now) for each in visible_slices(actor)]
    running = sum(each.running for each in page.object_list)
    form = _form(request, chosen, offered, refusal) if is_creating(request) else {}
    may_new = bool(offered) or (not known and may_somewhere(actor, Role.OPERATOR))
    return trial_page(request, "canaries", page, rows, refusal, slices=slices, running=running, may_new=may_new, **form)


def _chosen(known: Sequence[PolicyStanding], wanted: str) -> PolicyStanding | None:
    """Return the policy of that name, else the first that the actor may publish, else the first."""
    named = [each for each in known if each.policy.slug == wanted]
    return next(iter([*named, *(each for each in known if each.may_publish), *known]), None)


def _form(
    request: HttpRequest,
    chosen: PolicyStanding | None,
    offered: Sequence[PolicyStanding],
    refusal: Refusal | None,
) -> dict[str, Any]:
    fields = canary_fields(chosen.policy, asked(request, "version")) if chosen else []
    policies = [each.policy.slug for each in offered[:20]]
    return trial_form(request, fields, refusal.problems if refusal else (), standing=chosen, policies=policies)
