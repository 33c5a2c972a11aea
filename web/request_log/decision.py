"""The page of one decision: the finding, the reasons, what happened, the advice, and the figures."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import msgspec
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils import timezone
from django.views.decorators.http import require_safe

from controlplane.fleet.models.pool import Pool
from controlplane.platform.actor import Actor
from controlplane.platform.format import clock_time, count, duration, moment, plain, sentence, whole
from controlplane.platform.role import Role
from controlplane.platform.roles import may
from controlplane.policies.models.policy_version import PolicyVersion
from controlplane.policies.upgrade import routing_of
from controlplane.request_log.api.decisions import detail
from controlplane.request_log.decision_reading import FoundDecision, find_decision
from controlplane.request_log.decision_search import ON_TIME, visible_decisions
from controlplane.request_log.decision_story.certainty import beta_of, conditions, firmness, name_of
from controlplane.request_log.decision_story.instead import (
    WORTH_REPORTING_S,
    instead_words,
    lost_words,
    regret_of,
    spared_s,
    unknown_regret,
)
from controlplane.request_log.decision_story.story import story_of
from controlplane.request_log.models.decision_index import DecisionIndex
from gateway.contracts.stored_decision import RUNNING, StoredDecision
from gateway.pools.engines.hit_words import CAUSE_TITLES, cause_words
from routing.policy.schema_versions import SchemaError
from routing.values import reasons
from web.request_log import decision_pictures as pictures
from web.request_log.decision_rows import state_of
from web.shell.console_request import console_actor
from web.shell.frame import shell_context

JSON = "application/json"


_LOAD = ("Load limit", "{0.admission.threshold:g} × the objective")
_LIMITS = {
    reasons.QUEUE_FULL: ("Queue limit", "{0.queue_limit:,} requests"),
    reasons.WAIT_EXPIRED: ("Max wait", "{0.max_wait_s:g} s"),
    **dict.fromkeys((reasons.PREFILL_OVERLOAD, reasons.DECODE_OVERLOAD, reasons.DEFERRED), _LOAD),
}
"""Reason of a rejection → the setting that rejected it, and its value in the policy."""


@require_safe
def decision(request: HttpRequest, decision_id: str) -> HttpResponse:
    """Show one decision, stored or still in a gateway's memory; 404 if it is unknown or not visible to the person."""
    actor = console_actor(request)
    match = find_decision(actor, decision_id)
    if match is None:
        context = shell_context(request, page="Requests", decision_id=decision_id[:64], missing=True)
        return render(request, "request_log/decision_missing.html", context, status=404)
    if match.record is None:
        context = shell_context(request, page="Requests", decision_id=decision_id, gone=match.gone, row=match.row)
        return render(request, "request_log/decision_missing.html", context, status=410)
    context = shell_context(request, page="Requests", **_context(actor, match, match.record))
    return render(request, "request_log/decision.html", context)


@require_safe
def decision_json(request: HttpRequest, decision_id: str) -> HttpResponse:
    """Return the record and its timeline in the API's format."""
    match = find_decision(console_actor(request), decision_id)
    if match is None or match.record is None:
        raise Http404("decision")
    document = msgspec.json.encode(detail(match.record, stored=match.row is not None))
    return HttpResponse(msgspec.json.format(document, indent=2), content_type=JSON)


def _context(actor: Actor, match: FoundDecision, record: StoredDecision) -> dict[str, Any]:
    story, firm, beta = story_of(record), firmness(record), beta_of(record)
    made, regret, saved_s = record.decision, regret_of(record), spared_s(record)
    at = datetime.fromtimestamp(record.arrived_at, UTC)
    older, newer = _neighbours(actor, match.row)
    pool = Pool.objects.filter(slug=made.pool_id).select_related("policy").first()
    return {
        "decision_id": made.decision_id,
        "record": record,
        "row": match.row,
        "story": story,
        "tone": _tone(record),
        "at": moment(at, timezone.now()),
        "exact": clock_time(at, "milliseconds"),
        "pool": pool,
        "may_try": pool is not None and may(actor, Role.OPERATOR, pool),
        "timeline": pictures.timeline(record),
        "candidates": pictures.candidates(record),
        "sharing": any(candidate.sharing_s for candidate in record.decision.candidates),
        "beta": plain(beta) if beta is not None else "",
        "chosen_name": name_of(record, made.engine_id) if made.engine_id else "",
        "firm": pictures.firm_lines(record, firm) if firm else None,
        "conditions": conditions(record, firm) if firm else [],
        "rival": name_of(record, firm.rival) if firm else "",
        "regret": regret,
        "regret_best": name_of(record, regret.best_engine_id) if regret and saved_s > regret.lost_s else "",
        "regret_total": duration(regret.seconds) if regret and regret.seconds >= WORTH_REPORTING_S else "0",
        "regret_rows": pictures.regret_rows(record),
        "regret_words": lost_words(record) + sentence(instead_words(record) if regret else unknown_regret(record)),
        "missed": state_of(record.outcome, record.late) or "late",
        "predicted": whole(record.believed_tokens),
        "predicted_words": count(record.believed_tokens, "token"),
        "reported": "—" if record.cached_tokens is None else whole(record.cached_tokens),
        "blocks": count(max(1, made.prompt_tokens // max(1, record.block_tokens)), "block"),
        "cells": pictures.block_cells(record),
        "mismatch": CAUSE_TITLES.get(record.mismatch, ""),
        "mismatch_words": cause_words(record.mismatch) if record.mismatch else "",
        "inputs": pictures.inputs(record),
        "facts": [*_limit(record, pool), *pictures.facts(record)],
        "older": older,
        "newer": newer,
        "sampled": count(round(1 / record.share), "decision") if record.share < 1 else "",
    }


def _tone(record: StoredDecision) -> str:
    """Return the state whose pill style the verdict uses."""
    if record.outcome == RUNNING:
        return "starting"
    state = state_of(record.outcome, record.late)
    return "serving" if state == ON_TIME else state or "maintenance"


def _limit(record: StoredDecision, pool: Pool | None) -> list[tuple[str, str]]:
    """Return the limit that rejected the request, as in the policy version that decided; empty if it is none."""
    made = record.decision
    if made.engine_id or made.reason not in _LIMITS or pool is None:
        return []
    version = PolicyVersion.objects.filter(policy=pool.policy, number=made.policy_version).first()
    title, words = _LIMITS[made.reason]
    with suppress(SchemaError, msgspec.ValidationError):
        return [(title, f"{words.format(routing_of(version))}, policy v{version.number}")] if version else []
    return []


def _neighbours(actor: Actor, row: DecisionIndex | None) -> tuple[str, str]:
    """Return the ids of the previous and next decision in the same pool."""
    if row is None:
        return "", ""
    near = visible_decisions(actor).filter(pool=row.pool)
    older = near.filter(at_ms__lt=row.at_ms).order_by("-at_ms", "-pk").values_list("decision_id", flat=True).first()
    newer = near.filter(at_ms__gt=row.at_ms).order_by("at_ms", "pk").values_list("decision_id", flat=True).first()
    return older or "", newer or ""
