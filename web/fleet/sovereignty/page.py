"""The Sovereignty page: the rules in sentences, what they allow and cost, and a form for admins."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_http_methods

from controlplane.fleet.models.region import Region
from controlplane.fleet.sovereignty.cost import JOB, cost_of, question_of, start_cost
from controlplane.fleet.sovereignty.rules import (
    checked_document,
    document_in_force,
    replace_sovereignty,
    stored_sovereignty,
)
from controlplane.platform.conflict import ConflictError
from controlplane.platform.field_problems import FieldProblem
from controlplane.platform.live_fleet.samples import fleet_samples
from controlplane.platform.models.job_run import JobRun, JobState
from controlplane.platform.models.tenant import Tenant
from controlplane.platform.revisions import StaleRevisionError
from controlplane.platform.role import Role
from controlplane.platform.roles import may
from routing.regions.sovereignty import SovereigntyDocument, SovereigntyVerdict
from simulator.regions.sovereignty_cost import MOST_RULES, SovereigntyCost
from web.fleet.sovereignty.rule_rows import RuleRow, blamed, rows_of, sent_rows, sentence
from web.shell.console_request import console_actor, go, row_number, sent, why
from web.shell.frame import shell_context
from web.shell.no_role import needs_all_pools
from web.shell.rejection import FormRejection, attempted

MAX_ROWS = 200
OTHERS = ""
"""Represents all tenants that no rule names."""


Hop = tuple[SovereigntyVerdict, bool, bool]
"""The verdict, whether the request stays in its region, and whether the verdict differs from the active rules."""


def hop_matrix(
    document: SovereigntyDocument, in_force: SovereigntyDocument, regions: Sequence[str]
) -> list[tuple[str, str, list[Hop]]]:
    """Return tenant, arrival region, and hops to all regions in at most MAX_ROWS rows.

    Tenants named in either document have rows; all other tenants share rows.
    """
    tenants = (*dict.fromkeys((*document.tenants, *in_force.tenants)), OTHERS)
    rows = [
        (tenant, origin, [_hop(document, in_force, tenant, origin, region) for region in regions])
        for tenant in tenants
        for origin in regions
    ]
    return rows[:MAX_ROWS]


def _hop(
    document: SovereigntyDocument, in_force: SovereigntyDocument, tenant: str, origin: str, destination: str
) -> Hop:
    now, then = document.verdict(tenant, origin, destination), in_force.verdict(tenant, origin, destination)
    return now, origin == destination, now.allowed != then.allowed


ADDRESS = "/regions/sovereignty"
PAGE = "Regions"
NO_REASON = "Say why the rules change; the audit keeps it. Nothing was changed."
SAID = {"changed": "Rules changed; gateways apply them within a second."}
STALE = "Another person changed the rules while you edited. Compare with the rules in force, then save again."


@require_http_methods(["GET", "HEAD", "POST"])
@needs_all_pools(PAGE, "Sovereignty rules apply to all pools. Viewing them")
def sovereignty(request: HttpRequest) -> HttpResponse:
    """Show the rules; on POST preview a draft, compute its cost, or activate it."""
    if request.method != "POST":
        in_force = document_in_force()
        run = JobRun.objects.filter(job=JOB, pk=row_number(request.GET.get("cost"))).first()
        document = question_of(run).document if run is not None else in_force
        return _page(request, rows_of(document), document, run=run)
    if not may(console_actor(request), Role.ADMIN):
        rows = rows_of(document_in_force())
        return _page(
            request, rows, document_in_force(), problems=[FieldProblem("", "This requires the role admin.")], status=403
        )
    return _draft(request, sent_rows(request), sent(request, "default"))


def _draft(request: HttpRequest, rows: list[RuleRow], default: str) -> HttpResponse:
    given = {"default": default, "rules": [row.given() for row in rows]}
    document = attempted(lambda: checked_document(given))
    if isinstance(document, FormRejection):
        return _page(request, rows, None, default=default, problems=document.problems, status=422)
    act = sent(request, "act")
    if act == "cost":
        run = attempted(lambda: start_cost(document), ConflictError)
        if isinstance(run, FormRejection):
            return _page(request, rows, document, problems=run.problems, status=run.status)
        return go(ADDRESS, cost=str(run.pk))
    return _saved(request, rows, document, given) if act == "save" else _page(request, rows, document)


def _saved(
    request: HttpRequest, rows: list[RuleRow], document: SovereigntyDocument, given: dict[str, Any]
) -> HttpResponse:
    if not why(request):
        return _page(request, rows, document, problems=[FieldProblem("", NO_REASON)], status=422)
    revision = row_number(request.POST.get("revision"))
    saved = attempted(
        lambda: replace_sovereignty(
            stored_sovereignty(), given, actor=console_actor(request), expected=revision, why=why(request)
        ),
        StaleRevisionError,
    )
    if isinstance(saved, FormRejection):
        problems = [FieldProblem("", STALE)] if saved.status == 409 else saved.problems
        return _page(request, rows, document, problems=problems, status=saved.status)
    return go(ADDRESS, said="changed")


def _page(
    request: HttpRequest,
    rows: list[RuleRow],
    document: SovereigntyDocument | None,
    *,
    default: str = "",
    run: JobRun | None = None,
    problems: Sequence[FieldProblem] = (),
    status: int = 200,
) -> HttpResponse:
    regions, in_force = list(Region.objects.values_list("slug", flat=True)), document_in_force()
    tenants = list(Tenant.objects.values_list("slug", flat=True)[:MAX_ROWS])
    shown = document or in_force
    matrix = hop_matrix(shown, in_force, regions)
    cost = cost_of(run) if run is not None else None
    context = shell_context(
        request,
        page=PAGE,
        tab="sovereignty",
        finding=_finding(in_force, len(regions)),
        alone=len(regions) < 2 and not in_force.rules and document == in_force,
        is_draft=document is not None and document != in_force,
        sentences=_sentences(shown, cost),
        default=default or shown.default,
        regions=regions,
        matrix=matrix,
        traffic=_traffic(matrix, regions),
        changed=sum(changed for *_, hops in matrix for _, _, changed in hops),
        cost=_cost_words(cost),
        run=run,
        running=run is not None and run.state == JobState.ACTIVE,
        may_change=may(console_actor(request), Role.ADMIN),
        problem=" ".join(blamed(rows, problems)),
        rows=[row.offer(tenants, regions) for row in (*rows, RuleRow(len(rows) + 1))],
        revision=stored_sovereignty().revision,
        said=SAID.get(request.GET.get("said", ""), ""),
    )
    part = "fleet/sovereignty/rules.html" if "fragment" in request.GET else "fleet/sovereignty/page.html"
    return render(request, part, context, status=status)


def _traffic(matrix: Sequence[tuple[str, str, list[Hop]]], regions: Sequence[str]) -> str:
    """Return the requests per second that gateways forward over the changed hops; empty if there are none."""
    changed = {(origin, regions[at]) for _, origin, hops in matrix for at, hop in enumerate(hops) if hop[2]}
    sample, rates = fleet_samples().latest, Counter[tuple[str, str]]()
    for gateway in sample.regions if sample is not None else ():
        rates.update({(gateway.region, region): per_s for region, per_s in gateway.forwarded_per_s.items()})
    return ", ".join(f"{a} → {b} {rates[a, b]:.1f}/s" for a, b in sorted(changed) if rates[a, b] >= 0.05)


def _finding(in_force: SovereigntyDocument, regions: int) -> str:
    count = len(in_force.rules)
    if regions < 2 and not count:
        return "One region: all requests stay in it"
    rest = "may go to any region" if in_force.default == "allow" else "stay in their region"
    if not count:
        return f"No sovereignty rules; all requests {rest}"
    return f"{count} sovereignty rule{'' if count == 1 else 's'}; all other requests {rest}"


def _sentences(document: SovereigntyDocument, cost: SovereigntyCost | None) -> list[dict[str, Any]]:
    rows = []
    for number, rule in enumerate(document.rules, 1):
        row = {"number": number, "text": sentence(rule), "name": rule.name, "note": rule.note, "cost": "", "p90": ""}
        if cost is not None and (without := cost.without.get(rule.name)) is not None:
            row["cost"] = f"{_percent(cost.ruled.over_free / without.over_free - 1)} throughput"
            row["p90"] = f"TTFT P90 {cost.ruled.ttft_p90_s - without.ttft_p90_s:+.2f} s".replace("-", "−")
        rows.append(row)
    return rows


def _percent(share: float) -> str:
    return f"{100 * share:+.1f}%".replace("-", "−")


def _cost_words(cost: SovereigntyCost | None) -> dict[str, Any] | None:
    if cost is None:
        return None
    return {
        "fleet": ", ".join(f"{region} {count}" for region, count in cost.engines.items()),
        "throughput": _percent(cost.ruled.over_free - 1),
        "free": cost.free,
        "ruled": cost.ruled,
        "most": MOST_RULES,
    }
