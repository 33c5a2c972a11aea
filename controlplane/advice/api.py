"""`/api/v1/advice/…`."""

from __future__ import annotations

from typing import Any

from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.advice.evidence import cost_of_being_wrong, evidence_of, what_would_change_it
from controlplane.advice.models.advice_proposal import AdvicePrediction, AdviceProposal, ProposalState
from controlplane.advice.proposals import (
    reject,
    stop_autopilot,
    try_in_canary,
    try_in_shadow,
    visible_predictions,
    visible_proposals,
)
from controlplane.fleet.visibility import named_pool
from controlplane.platform.api.listing import Listing, exact, one_of
from controlplane.platform.api.strict_fields import ChangeBody, ModelShape, Text
from controlplane.platform.api.views import ApiView, Listed, Objects, ObjectView, Verb, by_method, taken_why


class AdviceProposalShape(ModelShape):
    """One proposal of the adviser, or its abstention."""

    number = serializers.IntegerField(source="pk", help_text="Its number.")
    base = serializers.IntegerField(source="base.number", help_text="Version that it was predicted against.")
    version = serializers.IntegerField(
        source="version.number", allow_null=True, default=None, help_text="Version of its draft."
    )
    shadow = serializers.IntegerField(source="shadow_id", allow_null=True, help_text="Id of its shadow.")
    canary = serializers.CharField(source="canary.key", allow_null=True, default=None, help_text="Key of its canary.")

    class Meta:
        model = AdviceProposal
        fields: tuple[str, ...] = (
            "number", "pool", "state", "reason", "waits", "base", "version", "shadow", "canary", "digest",
            "evidence_until", "created_at", "promoted_at", "ended_at", "ended_by", "revision",
        )  # fmt: skip


class AdviceEvidenceShape(AdviceProposalShape):
    """One proposal with its policy, its predictions, who is worse off, and its windows."""

    document = serializers.DictField(help_text="The proposed policy; empty for an abstention.")
    evidence = serializers.DictField(
        help_text="changes (per objective: live, proposed, change, low, high, checked), worse (tenants and prompt "
        "lengths), windows, practical, factor of the ranges, engines, runs, and CPU seconds."
    )
    cost_of_being_wrong = serializers.SerializerMethodField()
    what_would_change_it = serializers.SerializerMethodField()

    class Meta(AdviceProposalShape.Meta):
        fields = (
            *AdviceProposalShape.Meta.fields, "document", "evidence", "cost_of_being_wrong", "what_would_change_it",
        )  # fmt: skip

    def get_cost_of_being_wrong(self, proposal: AdviceProposal) -> list[str]:
        """Return what the worst ends of the ranges would cost."""
        return cost_of_being_wrong(evidence_of(proposal.evidence)) if proposal.document else []

    def get_what_would_change_it(self, proposal: AdviceProposal) -> list[str]:
        """Return the findings that would end the proposal."""
        return list(what_would_change_it(evidence_of(proposal.evidence))) if proposal.document else []


class AdvicePredictionShape(ModelShape):
    """One objective of a promoted proposal: the predicted change, and the measured one."""

    class Meta:
        model = AdvicePrediction
        fields: tuple[str, ...] = (
            "pool", "proposal", "objective", "predicted", "low", "high", "factor", "measured", "against_holdback", "at",
        )  # fmt: skip


class AdviceRejectionBody(ChangeBody):
    """The reason is required; the adviser's record keeps it."""

    why = Text(min_length=1, help_text="Why it is rejected, at most 200 characters.")


class AdviceSearchBody(ChangeBody):
    """The pool whose recorded traffic is searched."""

    pool = Text(max_length=64, help_text="Slug of the pool.")


class _Proposals(Objects):
    noun = "advice"
    shape = AdviceProposalShape
    rows = staticmethod(visible_proposals)
    field = "pk"
    has_etag = True


class AdviceProposals(_Proposals, Listed):
    """List proposals and abstentions, newest first."""

    listing = Listing(
        {"created_at": ("created_at", "pk")},
        "-created_at",
        {
            "pool": exact("pool__slug", "Slug of the pool."),
            "state": one_of("state", ProposalState.values, "State."),
        },
    )


class OneAdviceProposal(_Proposals, ObjectView):
    """One proposal."""

    shape = AdviceEvidenceShape
    says = by_method(GET="Return the proposal with its evidence.")


class _Act(_Proposals, Verb):
    bodies = by_method(POST=ChangeBody)


class AdviceShadow(_Act):
    """Start a shadow of its draft. Responds with 409 while another shadow runs in the pool."""

    verb = staticmethod(try_in_shadow)


class AdviceCanary(_Act):
    """Start a canary of its draft, in all pools of the policy. Responds with 409 while another one runs."""

    verb = staticmethod(try_in_canary)


class AdviceRejection(_Act):
    """Reject it. Traffic before the rejection proposes nothing again."""

    verb = staticmethod(reject)
    bodies = by_method(POST=AdviceRejectionBody)


class AdvicePredictions(Listed):
    """List predicted and measured changes of promoted proposals, newest first."""

    noun = "advice"
    shape = AdvicePredictionShape
    rows = staticmethod(visible_predictions)
    listing = Listing(
        {"at": ("at", "pk")},
        "-at",
        {"pool": exact("pool__slug", "Slug of the pool."), "objective": exact("objective", "Name of the objective.")},
    )


class StartedSearch(serializers.Serializer):
    """The started search."""

    run = serializers.IntegerField(help_text="Id of the job run.")


class AdviceSearch(ApiView):
    """Searches of recorded traffic."""

    noun = "advice"
    shape = StartedSearch
    bodies = by_method(POST=AdviceSearchBody)
    answers = by_method(POST=(201, StartedSearch))

    def post(self, request: Request) -> Response:
        """Search the pool's recorded traffic for a better policy now, as the daily job does."""
        # Here, because it imports the simulator.
        from controlplane.advice.search_job import search_now

        body = self.body()
        run = search_now(named_pool(self.actor, body["pool"]), actor=self.actor, why=taken_why(body))
        return self.show({"run": run.pk}, 201)


class StoppedAutopilots(serializers.Serializer):
    """The pools whose autopilot was stopped."""

    pools = serializers.ListField(child=serializers.CharField())


class AdviceStop(ApiView):
    """The autopilot of all pools."""

    noun = "advice"
    shape = StoppedAutopilots
    bodies = by_method(POST=ChangeBody)

    def post(self, request: Request) -> Response:
        """Return all pools that try or publish by themselves to proposing, and abort the adviser's trials."""
        body: dict[str, Any] = self.body()
        return self.show({"pools": stop_autopilot(actor=self.actor, why=taken_why(body))})
