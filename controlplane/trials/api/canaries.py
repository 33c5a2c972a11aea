"""`/api/v1/canaries`."""

from __future__ import annotations

from typing import Any

import msgspec
from django.utils import timezone
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response
from typing_extensions import override

from controlplane.fleet.models.pool import Pool
from controlplane.fleet.visibility import named_pool
from controlplane.platform.api.etags import etag_of
from controlplane.platform.api.listing import Listing, exact, one_of
from controlplane.platform.api.strict_fields import ChangeBody, Document, ModelShape, Number, Text, Truth, WholeNumber
from controlplane.platform.api.views import Listed, Objects, ObjectView, Verb, by_method, taken_why
from controlplane.platform.field_problems import problem
from controlplane.policies.models.policy_version import PolicyVersion
from controlplane.policies.reading import visible_policies
from controlplane.trials.api.named_version import version_of
from controlplane.trials.canary import lifecycle as canaries
from controlplane.trials.canary.end import abort
from controlplane.trials.canary.evidence import Evidence, step_evidence
from controlplane.trials.canary.lifecycle import ADVANCES, DEFAULT_DWELL_S, DEFAULT_STEPS, LONGEST_DWELL_S, MAX_STEPS
from controlplane.trials.models.canary import Canary, CanaryState


class CanaryShape(ModelShape):
    """One canary: its steps, its state, and the last evaluation of both arms."""

    version = serializers.IntegerField(source="version.number", read_only=True)
    against = serializers.IntegerField(
        source="against.number", read_only=True, help_text="Number of the version that was live when it began."
    )
    pool = serializers.SlugRelatedField(
        slug_field="slug",
        read_only=True,
        allow_null=True,
        help_text="The pool on trial, beside the other pools of its model in its region; null: a version is on trial.",
    )
    steps = serializers.ListField(child=serializers.FloatField(), read_only=True)
    share = serializers.FloatField(read_only=True, help_text="Share of sessions at its step, 0 to 1.")
    guardrails = serializers.DictField(read_only=True)
    evaluation = serializers.DictField(
        read_only=True,
        help_text="Figures of both sides (base: the live version or the other pools, tried: the canary), guardrails "
        "with thresholds, and reasons. Empty: not evaluated yet.",
    )

    evidence = serializers.SerializerMethodField(
        help_text="Evidence for its step: dwell_s and requests missing; guardrails with the verdict holds, not_yet "
        "or broken, and for not_yet wait_s, the estimated time to a verdict; missing, as sentences; wait_s over all "
        "(null: no estimate). Empty: it has ended.",
    )

    class Meta:
        model = Canary
        fields = (
            "key",
            "policy",
            "version",
            "against",
            "pool",
            "steps",
            "step",
            "share",
            "step_at",
            "min_dwell_s",
            "advance",
            "guardrails",
            "state",
            "reason",
            "why",
            "author_name",
            "ended_by",
            "started_at",
            "ended_at",
            "evaluation",
            "evidence",
        )

    def get_evidence(self, canary: Canary) -> dict[str, Any]:
        """Return the state of the evidence for its step."""
        fields: dict[str, Any] = msgspec.to_builtins(step_evidence(canary, timezone.now())) if canary.running else {}
        return fields


class GoOn(ChangeBody):
    """Body of a canary's step or promotion."""

    force = Truth(
        required=False,
        default=False,
        help_text="Continue without evidence; `why` is then required, and the audit records what was missing.",
    )


class NewCanary(ChangeBody):
    """Body of POST /canaries."""

    policy = Text(required=False, help_text="Slug of the policy; with version.")
    version = WholeNumber(
        required=False, min_value=0, max_value=2**31 - 1, help_text="Number of the candidate version."
    )
    pool = Text(
        required=False,
        help_text="Instead of policy and version: slug of a pool of weight 0 that gets a share of the sessions of the "
        "other pools of its model in its region. Promotion sets its weight.",
    )
    steps = serializers.ListField(
        child=Number(min_value=0, max_value=1),
        required=False,
        default=list(DEFAULT_STEPS),
        max_length=MAX_STEPS,
        help_text="Increasing shares of sessions, each above 0 and below 1; promotion follows the last.",
    )
    min_dwell_s = Number(
        min_value=0,
        max_value=LONGEST_DWELL_S,
        required=False,
        default=DEFAULT_DWELL_S,
        help_text="Minimum seconds per step before an automatic step.",
    )
    advance = serializers.ChoiceField(
        choices=ADVANCES,
        required=False,
        default="by_hand",
        help_text="by_hand: manual steps. steps: automatic steps, manual promotion. promote: automatic steps and "
        "promotion.",
    )
    guardrails = Document(
        required=False,
        default=dict,
        help_text="late_more, failed_more, ttft_ratio, tail_ratio, min_requests, window_s; omitted ones take their "
        "defaults.",
    )


class _Canaries(Objects):
    noun = "canaries"
    shape = CanaryShape
    rows = staticmethod(canaries.visible_canaries)
    field = "key"
    has_etag = True


class Canaries(_Canaries, Listed):
    """List canaries, newest first."""

    bodies = by_method(POST=NewCanary)
    listing = Listing(
        {"started_at": ("started_at", "pk")},
        "-started_at",
        {
            "policy": exact("policy__slug", "Slug of the policy."),
            "state": one_of("state", CanaryState.values, "State."),
        },
    )

    def post(self, request: Request) -> Response:
        """Give a version or a pool a share of the sessions. Responds with 409 while a canary of the policy runs."""
        body = self.body()
        why = taken_why(body)
        tried = self._tried(*(body.pop(name, None) for name in ("policy", "version", "pool")))
        return self.show(canaries.start_canary(tried, actor=self.actor, why=why, **body), 201)

    def _tried(self, policy: str | None, version: int | None, pool: str | None) -> PolicyVersion | Pool:
        if pool is not None:
            if policy is not None or version is not None:
                raise problem("pool", "Send either a pool, or a policy and a version.")
            return named_pool(self.actor, pool)
        of_policy = visible_policies(self.actor).filter(slug=policy or "").first()
        if of_policy is None:
            raise problem("policy", "No such policy.")
        if version is None:
            raise problem("version", "This field is required.")
        return version_of(of_policy, "version", version)


class OneCanary(_Canaries, ObjectView):
    """One canary."""

    @override
    def get(self, request: Request, **names: Any) -> Response:
        """Return the canary. Its ETag does not change with the evaluation."""
        canary = self.thing(**names)
        return Response(self.represented(canary), headers={"ETag": etag_of(canary)})


class _CanaryVerb(_Canaries, Verb):
    @override
    def carry_out(self, thing: Canary, *, force: bool = False, **asked: Any) -> Canary:
        """Call the service. `force` continues without evidence."""
        return self.verb(thing, **asked, **({"evidence": Evidence.WAIVED} if force else {}))


class CanaryStep(_CanaryVerb):
    """Give the canary its next share. Responds with 409 and the missing evidence. If-Match is optional."""

    verb = staticmethod(canaries.take_step)
    bodies = by_method(POST=GoOn)


class CanaryPromotion(_CanaryVerb):
    """Publish the canary's version for all sessions, or keep the pool's share. Responds with 409 and the missing
    evidence.

    If-Match is optional.
    """

    verb = staticmethod(canaries.promote)
    bodies = by_method(POST=GoOn)


class CanaryAbort(_CanaryVerb):
    """Return all sessions to the live version or the other pools. If-Match is optional."""

    verb = staticmethod(abort)
    bodies = by_method(POST=ChangeBody)
