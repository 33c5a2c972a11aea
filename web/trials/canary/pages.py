"""The canary pages: the list with the holdbacks, the form, and each canary's guardrails and figures."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

import msgspec
from django.db.models import QuerySet
from django.http import Http404, HttpRequest
from typing_extensions import override

from controlplane.fleet.ready_engines import ready_engines
from controlplane.platform.actor import Actor
from controlplane.platform.conflict import ConflictError
from controlplane.platform.field_problems import InvalidFieldsError, problem
from controlplane.platform.format import brief_percent, moment, roughly, sentence
from controlplane.platform.revisions import StaleRevisionError
from controlplane.platform.role import Role
from controlplane.platform.roles import may_somewhere
from controlplane.policies.document.problems import InvalidPolicyError
from controlplane.policies.models.policy import Policy
from controlplane.policies.publish import StalePolicyError
from controlplane.policies.reading import PolicyAccess, policies_of, policy_of
from controlplane.trials.canary import lifecycle as service
from controlplane.trials.canary.end import abort
from controlplane.trials.canary.evaluation import CanaryEvaluation, stored_evaluation
from controlplane.trials.canary.evidence import (
    Evidence,
    EvidenceMissingError,
    evaluation_at_step,
    known_guardrails,
    step_evidence,
)
from controlplane.trials.canary.holdback import visible_slices
from controlplane.trials.models.canary import Canary, CanaryState
from planning.documents.guardrail_document import GuardrailDocument
from routing.values.prepared_struct import prepared
from web.policies.access import NEEDS_OPERATOR
from web.policies.questions import on_time_now, requests_per_s, word_to_type, wrong_word
from web.shell.console_request import asked, row_number, sent, sent_or_asked, why
from web.shell.form_field import FormField
from web.shell.rejection import FormRejection
from web.trials.canary import words
from web.trials.canary.form import asked_from, canary_fields
from web.trials.canary.pictures import distribution, late_course
from web.trials.trial_page import ADDRESS, TrialPages

VERBS: dict[str, Callable[..., Canary]] = {
    "step": service.take_step,
    "promote": service.promote,
    "abort": abort,
}


class CanaryPages(TrialPages):
    """The list of canaries, and the page of each canary."""

    page = "trials/canary/page.html"
    name, plural, address = "canary", "Canaries", f"{ADDRESS}/canaries"
    needs_role_in = "every pool of a policy"
    id_field = "key"
    conflicts = (ConflictError, StaleRevisionError, StalePolicyError, InvalidPolicyError)

    @override
    def visible(self, actor: Actor) -> QuerySet[Canary]:
        return service.visible_canaries(actor)

    @override
    def rows(self, canaries: list[Canary], actor: Actor, now: datetime) -> dict[str, Any]:
        policies = policies_of(actor)
        return {
            "rows": [
                {
                    "canary": item,
                    "candidate": words.candidate(item),
                    "baseline": words.baseline(item),
                    "state": words.STATES[CanaryState(item.state)],
                    "share": brief_percent(item.share),
                    "at": moment(item.started_at, now),
                }
                for item in canaries
            ],
            "slices": [words.holdback_row(visible_slice, now) for visible_slice in visible_slices(actor)],
            "running": sum(item.running for item in canaries),
            "may_new": any(policy.may_publish for policy in policies)
            or (not policies and may_somewhere(actor, Role.OPERATOR)),
        }

    @override
    def fields(self, request: HttpRequest, owner: PolicyAccess, actor: Actor) -> Sequence[FormField]:
        return canary_fields(owner.policy, request.GET.get("version", ""))

    @override
    def form(self, request: HttpRequest, actor: Actor) -> dict[str, Any]:
        chosen = _chosen(request, actor)
        return {
            "policy_state": chosen,
            "chosen": ("policy", chosen.policy.slug) if chosen else None,
            "picks": [policy.policy.slug for policy in policies_of(actor) if policy.may_publish][:20],
            "fields": self.fields(request, chosen, actor) if chosen else (),
            "on_time": on_time_now(chosen) if chosen else (),
            "engines": ready_engines(chosen.pools) if chosen else 0,
            "per_s": requests_per_s(chosen) if chosen else None,
            "needed": GuardrailDocument().min_requests,
        }

    @override
    def form_needs(self, request: HttpRequest, actor: Actor) -> str:
        chosen = _chosen(request, actor)
        allowed = chosen.may_publish if chosen else may_somewhere(actor, Role.OPERATOR)
        return "" if allowed else NEEDS_OPERATOR

    @override
    def start(self, request: HttpRequest, actor: Actor) -> Canary:
        try:
            policy = policy_of(actor, sent(request, "policy")).policy
        except Policy.DoesNotExist as error:
            raise Http404("No such policy in your pools.") from error
        tried, course = asked_from(request.POST, policy)
        try:
            return service.start_canary(tried, actor=actor, why=why(request), **course)
        except InvalidPolicyError as error:
            raise problem("version", str(error)) from error

    @override
    def turn(self, request: HttpRequest, canary: Canary, action: str, actor: Actor) -> Canary:
        """Advance, promote, or abort the canary, in the state that the person saw."""
        if action not in VERBS:
            raise Http404("No such action.")
        of_policy = policy_of(actor, canary.policy.slug)
        word = word_to_type(of_policy, ready_engines(of_policy.pools)) if action == "promote" else ""
        if of_policy.may_publish and (wrong := wrong_word(word, sent(request, "confirm"), "promote it")):
            raise problem("confirm", wrong)
        # 0 is no revision: a form that does not state what its person saw changes nothing.
        expected = row_number(request.POST.get("revision"), 10) or 0
        more = {"evidence": Evidence.WAIVED} if sent(request, "force") and action != "abort" else {}
        return VERBS[action](canary, actor=actor, expected=expected, why=why(request), **more)

    @override
    def shown(
        self, request: HttpRequest, canary: Canary, actor: Actor, now: datetime, rejection: FormRejection | None
    ) -> dict[str, Any]:
        # The result of an earlier step says nothing about the running one.
        evaluation = evaluation_at_step(canary) if canary.running else stored_evaluation(canary.evaluation)
        evidence, of_policy = step_evidence(canary, now), policy_of(actor, canary.policy.slug)
        asks = rejection is not None and isinstance(rejection.error, InvalidFieldsError | EvidenceMissingError)
        following = canary.step + 1
        return {
            "title": f"canary of {canary.policy.slug} {words.candidate(canary)}",
            "about": ", ".join(pool.slug for pool in of_policy.visible),
            "running": canary.running,
            "state": words.STATES[CanaryState(canary.state)],
            "steps": words.step_marks(canary),
            "next_share": brief_percent(canary.steps[following]) if following < len(canary.steps) else "",
            "started": moment(canary.started_at, now),
            "ended": moment(canary.ended_at, now),
            "step_at": moment(canary.step_at, now),
            "may_control": of_policy.may_publish,
            "asks_abort": canary.running and of_policy.may_publish and asked(request, "ask") == "abort",
            "on_time": on_time_now(of_policy),
            "engines": ready_engines(of_policy.pools),
            "untried": service.untried(canary.version, canary.against),
            "candidate": words.candidate(canary),
            "baseline": words.baseline(canary),
            "evaluation": evaluation,
            "reason": sentence(canary.reason),
            "word": word_to_type(of_policy, ready_engines(of_policy.pools)),
            # The action whose question is open.
            "asked": request.resolver_match.kwargs["action"] if asks and request.resolver_match else "",
            "evidence": evidence,
            "dwell_s": math.ceil(evidence.dwell_s),
            "known_in": roughly(evidence.wait_s) if evidence.wait_s else "",
            **(_figures(canary, evaluation) if evaluation is not None else {}),
        }


def _chosen(request: HttpRequest, actor: Actor) -> PolicyAccess | None:
    """Return the requested policy, else the first that the actor can publish, else the first."""
    known, wanted = policies_of(actor), sent_or_asked(request, "policy")
    named = [item for item in known if item.policy.slug == wanted]
    return next(iter([*named, *(item for item in known if item.may_publish), *known]), None)


def _figures(canary: Canary, evaluation: CanaryEvaluation) -> dict[str, Any]:
    limits = msgspec.convert(canary.guardrails, prepared(GuardrailDocument))
    return {
        "reasons": [sentence(reason.text) for reason in evaluation.reasons],
        "guardrails": words.guard_lines(evaluation, limits, known_guardrails(evaluation, limits, canary.step_at)),
        "keys": (("draft", "Canary"), ("base", "Live" if canary.pool is None else "Other pools")),
        "sides": words.sides(canary),
        "picture": distribution(evaluation),
        "course": late_course(evaluation),
    }


PAGES = CanaryPages()
