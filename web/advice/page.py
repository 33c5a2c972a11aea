"""The pages of advice; with `?fragment` only the part that changes."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import get_object_or_404, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_POST, require_safe

from controlplane.advice.evidence import (
    BY_NAME,
    NOTABLE_FACTOR,
    AdviceEvidence,
    cost_of_being_wrong,
    evidence_of,
    what_would_change_it,
)
from controlplane.advice.measuring import measured_predictions, widening_of
from controlplane.advice.models.advice_proposal import AdvicePrediction, AdviceProposal, ProposalState
from controlplane.advice.proposals import (
    AUTOPILOTS,
    effective_mode,
    reject,
    stop_autopilot,
    try_in_canary,
    try_in_shadow,
    visible_predictions,
    visible_proposals,
)
from controlplane.fleet.models.pool import AdviceMode
from controlplane.fleet.visibility import visible_pools
from controlplane.platform.conflict import ConflictError
from controlplane.platform.field_problems import problem
from controlplane.platform.format import moment
from controlplane.platform.revisions import StaleRevisionError
from controlplane.platform.role import Role
from controlplane.platform.roles import may
from controlplane.policies.approvals import lacks_approval
from controlplane.policies.document.diff import diff_runs
from controlplane.policies.document.merge import changes_between
from controlplane.policies.document.problems import InvalidPolicyError
from controlplane.policies.document.text import completed
from controlplane.policies.roles import may_publish
from planning.adviser.autopilot import UNSETTLED
from planning.adviser.calibration import MOST, coverage
from planning.adviser.prediction import DECIDING, OBJECTIVES, AdviceObjective
from web.advice.pictures import change_text, measured_pictures, range_rows
from web.advice.searches import NEEDS, first_search, pool_rows
from web.policies.words import change_lines, change_summary
from web.shell.console_request import asked, console_actor, go, listed, row_number, sent, why
from web.shell.frame import shell_context
from web.shell.rejection import FormRejection, attempted

ADDRESS, PAGE = "/advice", "Advice"
MOST_POOLS = 200
_CONFLICTS = (ConflictError, StaleRevisionError, InvalidPolicyError)
SAID = {
    "shadow": "The shadow has started.",
    "canary": "The canary has started. Guardrails stop it when it is worse.",
    "reject": "Rejected. Traffic before the rejection proposes nothing again.",
    "search": "The search has started. Its CPU budget is 10 minutes; live processes come first.",
    "stop": "Stopped. No pool tries or publishes anything by itself.",
}
_SHAPES = {
    ProposalState.OPEN: "hot", ProposalState.IN_CANARY: "hot", ProposalState.PROMOTED: "serving",
    ProposalState.CONTRADICTED: "lost",
}  # fmt: skip


@require_safe
def advice(request: HttpRequest) -> HttpResponse:
    """Show the waiting proposals, the pools, and past proposals."""
    return _list(request)


def _list(request: HttpRequest, rejection: FormRejection | None = None) -> HttpResponse:
    actor, now = console_actor(request), timezone.now()
    proposals = visible_proposals(actor)
    past = listed(request, proposals.exclude(state__in=UNSETTLED), 25)
    pools = list(visible_pools(actor).select_related("policy__live_version").order_by("slug")[:MOST_POOLS])
    waiting = list(proposals.filter(state__in=UNSETTLED))
    searches = pool_rows(pools, waiting, actor, now)
    context = shell_context(
        request,
        page=PAGE,
        tab="proposals",
        rows=[_row(item, now) for item in waiting],
        past=[_row(item, now) for item in past],
        paging=past,
        keep="",
        pools=searches,
        first=first_search(searches),
        needs=NEEDS,
        may_stop=may(actor, Role.OPERATOR) and any(pool.advice in AUTOPILOTS for pool in pools),
        problem=rejection.words if rejection else "",
        said=SAID.get(request.GET.get("said", ""), ""),
        fragment=f"{ADDRESS}?fragment=1",
    )
    part = "advice/rows.html" if "fragment" in request.GET else "advice/list.html"
    return render(request, part, context, status=rejection.status if rejection else 200)


def _row(proposal: AdviceProposal, now: datetime) -> dict[str, Any]:
    evidence = evidence_of(proposal.evidence)
    return {
        "proposal": proposal,
        "title": _title(proposal),
        "gains": _gains(evidence),
        "shape": _SHAPES.get(ProposalState(proposal.state), "unknown"),
        "at": moment(proposal.created_at, now),
    }


def _title(proposal: AdviceProposal) -> str:
    if not proposal.document:
        return "No proposal"
    changes = changes_between(completed(proposal.base.document), completed(proposal.document))
    return change_summary(changes) or "No change"


def _gains(evidence: AdviceEvidence) -> str:
    """Return the deciding changes with their ranges in one line."""
    return ", ".join(
        f"{objective.title} {change_text(item.change, objective)} "
        f"({change_text(item.low, objective)} … {change_text(item.high, objective)})"
        for objective, item in evidence.named
        if objective.name in DECIDING
    )


@require_safe
def proposal(request: HttpRequest, number: int) -> HttpResponse:
    """Show one proposal."""
    return _page(request, _visible(request, number))


def _visible(request: HttpRequest, number: int) -> AdviceProposal:
    return get_object_or_404(visible_proposals(console_actor(request)), pk=number)


def _page(request: HttpRequest, shown: AdviceProposal, rejection: FormRejection | None = None) -> HttpResponse:
    actor, now = console_actor(request), timezone.now()
    evidence, policy = evidence_of(shown.evidence), shown.pool.policy
    before = completed(shown.base.document)
    after = completed(shown.document) if shown.document else before
    unsettled = shown.state in UNSETTLED
    context = shell_context(
        request,
        page=PAGE,
        proposal=shown,
        evidence=evidence,
        title=_title(shown),
        unsettled=unsettled,
        mode=AdviceMode(effective_mode(list(policy.pools.all()))).label,
        at=moment(shown.created_at, now),
        ranges=range_rows(evidence),
        changes=change_lines(changes_between(before, after)),
        runs=diff_runs(before, after),
        windows=[(item, datetime.fromtimestamp(item.begins_at, UTC)) for item in evidence.windows],
        costs=cost_of_being_wrong(evidence) if shown.document else (),
        minds=list(what_would_change_it(evidence)) if shown.document else (),
        approval=unsettled and shown.version is not None and lacks_approval(shown.version),
        may_act=unsettled and may(actor, Role.OPERATOR, shown.pool),
        may_publish=unsettled and may_publish(actor, policy),
        predictions=_prediction_rows(shown),
        problem=rejection.words if rejection else "",
        said=SAID.get(request.GET.get("said", ""), ""),
        fragment=f"{reverse('advice-proposal', args=[shown.pk])}?fragment=1",
    )
    part = "advice/live.html" if "fragment" in request.GET else "advice/page.html"
    return render(request, part, context, status=rejection.status if rejection else 200)


def _prediction_rows(shown: AdviceProposal) -> list[dict[str, str]]:
    named = ((BY_NAME.get(item.objective), item) for item in shown.predictions.order_by("pk"))
    return [_measured_words(objective, item) for objective, item in named if objective is not None]


@require_safe
def record(request: HttpRequest) -> HttpResponse:
    """Show predicted against measured changes, and how many ranges contained what came."""
    actor, slug = console_actor(request), asked(request, "pool", 64)
    pools = list(visible_pools(actor).select_related("policy").order_by("slug")[:MOST_POOLS])
    shown = visible_predictions(actor).filter(measured__isnull=False).order_by("-at", "-pk")
    chosen = next((pool for pool in pools if pool.slug == slug), None)
    if chosen is not None:
        shown = shown.filter(pool=chosen)
    named = [(BY_NAME[item.objective], item) for item in shown[:500] if item.objective in BY_NAME]
    measured = measured_predictions([item for _, item in named][:MOST])
    waiting = () if named else visible_proposals(actor).filter(state__in=UNSETTLED)
    context = shell_context(
        request,
        page=PAGE,
        tab="record",
        pictures=measured_pictures(named, OBJECTIVES),
        rows=[(objective, item, _measured_words(objective, item)) for objective, item in named[:100]],
        measured=len(measured),
        coverage=coverage(measured),
        within=sum(item.within for item in measured),
        widened=[(pool, factor) for pool in pools if (factor := widening_of(pool)) >= NOTABLE_FACTOR],
        pools=pools,
        chosen=chosen,
        first=None if named else first_search(pool_rows([chosen] if chosen else pools, waiting, actor, timezone.now())),
        needs=NEEDS,
    )
    return render(request, "advice/record.html", context)


def _measured_words(objective: AdviceObjective, item: AdvicePrediction) -> dict[str, str]:
    return {
        "title": objective.title,
        "predicted": change_text(item.predicted, objective),
        "range": f"{change_text(item.low, objective)} … {change_text(item.high, objective)}",
        "measured": "" if item.measured is None else change_text(item.measured, objective),
        "within": "yes" if item.measured is not None and item.low <= item.measured <= item.high else "",
        "against": "" if item.against_holdback is None else change_text(item.against_holdback, objective),
    }


_ACTS: dict[str, Callable[..., object]] = {"shadow": try_in_shadow, "canary": try_in_canary, "reject": reject}


@require_POST
def act(request: HttpRequest, number: int, act: str) -> HttpResponse:
    """Try or reject a proposal."""
    shown, actor = _visible(request, number), console_actor(request)
    expected = row_number(request.POST.get("revision"))

    def carry_out() -> object:
        if act not in _ACTS:
            raise problem("", "There is no such action.")
        return _ACTS[act](shown, actor=actor, expected=expected, why=why(request))

    done = attempted(carry_out, *_CONFLICTS)
    if isinstance(done, FormRejection):
        return _page(request, _visible(request, number), done)
    return go(reverse("advice-proposal", args=[shown.pk]), said=act)


@require_POST
def search(request: HttpRequest) -> HttpResponse:
    """Search a pool's recorded traffic now."""
    # Here, because it imports the simulator.
    from controlplane.advice.search_job import search_now

    actor = console_actor(request)
    pool = get_object_or_404(visible_pools(actor).select_related("policy__live_version"), slug=sent(request, "pool"))
    done = attempted(lambda: search_now(pool, actor=actor, why=why(request)), *_CONFLICTS)
    return _list(request, done) if isinstance(done, FormRejection) else go(ADDRESS, said="search")


@require_POST
def stop(request: HttpRequest) -> HttpResponse:
    """Stop the autopilot of all pools."""
    done = attempted(lambda: stop_autopilot(actor=console_actor(request), why=why(request)), *_CONFLICTS)
    return _list(request, done) if isinstance(done, FormRejection) else go(ADDRESS, said="stop")
