"""`/api/v1/decisions`."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec
from rest_framework import serializers
from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.platform.api.listing import BadFilterError, Filter, Listing, exact, one_of, truth
from controlplane.platform.api.problem import ProblemError
from controlplane.platform.api.strict_fields import ModelShape
from controlplane.platform.api.views import ApiView, Listed
from controlplane.platform.search_filter import UnreadableFilterError
from controlplane.request_log.decision_reading import find_decision
from controlplane.request_log.decision_search import digests_of, unix_ms, visible_decisions
from controlplane.request_log.decision_story.emphasis import text_of
from controlplane.request_log.decision_story.story import story_of
from controlplane.request_log.models.decision_index import DecisionIndex
from gateway.contracts.hit_sample import MISMATCHES
from gateway.contracts.regret import CAUSES
from gateway.contracts.stored_decision import StoredDecision
from routing.trials.arms import ARMS


class RecordedDecisionShape(ModelShape):
    """One decision in a list. Times are in milliseconds; `at` is the request's arrival."""

    id = serializers.CharField(source="decision_id")
    at = serializers.SerializerMethodField()

    class Meta:
        model = DecisionIndex
        fields = (
            "id",
            "at",
            "pool",
            "engine",
            "tenant",
            "session",
            "client_request_id",
            "reason",
            "policy_version",
            "arm",
            "outcome",
            "error",
            "late",
            "ttft_ms",
            "queued_ms",
            "prompt_tokens",
            "predicted_tokens",
            "reported_tokens",
            "mismatch",
            "regret_ms",
            "regret_cause",
            "share",
        )

    def get_at(self, row: DecisionIndex) -> datetime:
        """Return the arrival time."""
        return datetime.fromtimestamp(row.at_ms / 1000, UTC)


class DecisionStoryShape(serializers.Serializer):
    """Description of the decision in sentences."""

    title = serializers.CharField()
    verdict = serializers.CharField()
    why = serializers.CharField()
    happened = serializers.CharField()
    to_do = serializers.CharField()


class RecordedDecisionDetailShape(serializers.Serializer):
    """One decision in full: the gateway's record, and its description."""

    id = serializers.CharField()
    stored = serializers.BooleanField(help_text="False: in the gateway's memory only, or not stored yet.")
    record = serializers.DictField(help_text="Candidates with their terms, ages, trust, outcome, regret by cause.")
    story = DecisionStoryShape()

    def to_representation(self, instance: dict[str, Any]) -> dict[str, Any]:
        """Return the members unchanged."""
        return instance


OUTCOMES = ("completed", "failed", "rejected", "cancelled", "client_error", "unanswered")


def _ms(text: str) -> int:
    try:
        return unix_ms("It", text)
    except UnreadableFilterError as error:
        raise BadFilterError(str(error)) from error


def _moment(lookup: str, sentence: str) -> Filter:
    schema = {"type": "string", "format": "date-time"}
    return Filter(lookup, sentence, read=_ms, repeats=False, schema=schema)


class DecisionsView(Listed):
    """List decisions, newest first."""

    noun = "decisions"
    shape = RecordedDecisionShape
    rows = staticmethod(visible_decisions)
    listing = Listing(
        {"at": ("at_ms", "pk")},
        "-at",
        {
            "id": exact("decision_id", "Id of the decision, as in the response header x-headway-decision."),
            "pool": exact("pool", "Slug of the pool."),
            "engine": exact("engine", "Id of the chosen engine."),
            "tenant": exact("tenant", "Slug of the tenant."),
            "session": Filter("session", "Session id that clients send, or its digest.", read=digests_of),
            "client_request_id": exact("client_request_id", "The X-Request-Id that the client sent."),
            "reason": exact("reason", "Reason for choosing the engine or none, such as least_cost."),
            "arm": one_of("arm", ARMS, "Arm of the decision during a trial."),
            "outcome": one_of("outcome", OUTCOMES, "Outcome of the request."),
            "late": truth("late", "Whether the objective was missed: late, rejected or failed."),
            "regret_cause": one_of("regret_cause", CAUSES, "Main cause of regret."),
            "mismatch": one_of("mismatch", MISMATCHES, "Cause of the difference between predicted and reported hits."),
            "since": _moment("at_ms__gte", "Requests that arrived at this time or later."),
            "until": _moment("at_ms__lt", "Requests that arrived before this time."),
        },
    )


class OneDecision(ApiView):
    """One decision in full."""

    noun = "decisions"
    shape = RecordedDecisionDetailShape

    def get(self, request: Request, *, decision_id: str) -> Response:
        """Return the record and its description."""
        decision = find_decision(self.actor, decision_id)
        if decision is None:
            raise DecisionIndex.DoesNotExist
        if decision.record is None:
            raise ProblemError(404, f"The record of this decision is no longer available: {decision.gone}.")
        return self.show(detail(decision.record, stored=decision.row is not None))


def detail(record: StoredDecision, *, stored: bool) -> dict[str, Any]:
    """Return the decision in the format of the API, the page's JSON, and `manage.py explain --json`."""
    story = story_of(record)
    return {
        "id": record.decision.decision_id,
        "stored": stored,
        "record": msgspec.to_builtins(record),
        "story": {
            "title": story.title,
            "verdict": story.verdict,
            "why": text_of(story.why),
            "happened": text_of(story.happened),
            "to_do": story.to_do,
        },
    }
