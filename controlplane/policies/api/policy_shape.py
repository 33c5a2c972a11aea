"""Wire format of policies and their versions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from drf_spectacular.utils import extend_schema_field
from rest_framework import serializers
from typing_extensions import override

from controlplane.platform.api.error_answers import answer_with
from controlplane.platform.api.problem import ProblemError
from controlplane.platform.api.resource_bodies import ResourceShape, change_body, new_body
from controlplane.platform.api.strict_fields import ChangeBody, Document, Input, ModelShape, Text, WholeNumber
from controlplane.policies.models.policy import Policy
from controlplane.policies.models.policy_version import PolicyVersion
from controlplane.policies.models.scheduled_publish import ScheduledPublish
from controlplane.policies.publish import StalePolicyError
from controlplane.policies.release_timeline import DONE, NEXT, NOW, SKIPPED, TimelineStep
from controlplane.policies.release_timeline_facts import timelines_of

_LARGEST = 2**31 - 1


class PolicyShape(ResourceShape):
    """A sequence of versions, one of which may be live."""

    class Meta:
        model = Policy


class ReleaseStepShape(serializers.Serializer):
    """One step of a version's release, from draft to live and replaced."""

    step = serializers.CharField(
        help_text="drafted, validated, what_if, shadow, canary, approved, scheduled, live, replaced or rolled_back."
    )
    state = serializers.ChoiceField(
        choices=(DONE, NOW, NEXT, SKIPPED),
        help_text="done; now: current; next: possible; skipped: not needed, or no longer possible.",
    )
    at = serializers.DateTimeField(allow_null=True)
    by = serializers.CharField(allow_blank=True)
    words = serializers.CharField(allow_blank=True)
    address = serializers.CharField(allow_blank=True, help_text="Console page.")


class _VersionList(serializers.ListSerializer):
    """Versions of one policy, whose timelines are read together."""

    @override
    def to_representation(self, data: Any) -> list[Any]:
        """Return the versions with their timelines."""
        versions = list(data)
        if versions:
            # Of the whole page at once: the number of queries must not grow with that of the versions.
            self.child.timelines = timelines_of(versions[0].policy, versions, self.context.get("actor"))
        return super().to_representation(versions)


class PolicyVersionShape(ModelShape):
    """A complete policy, written once."""

    author = serializers.SlugRelatedField(slug_field="username", read_only=True, allow_null=True)
    document = serializers.JSONField(read_only=True)
    release_timeline = serializers.SerializerMethodField()
    timelines: Mapping[int, tuple[TimelineStep, ...]] | None = None
    """Timelines by version id, for a response with several versions."""

    class Meta:
        model = PolicyVersion
        list_serializer_class = _VersionList
        fields = (
            "policy",
            "number",
            "document",
            "author",
            "message",
            "based_on",
            "copies",
            "created_at",
            "published_at",
            "release_timeline",
        )

    @extend_schema_field(ReleaseStepShape(many=True))
    def get_release_timeline(self, version: PolicyVersion) -> list[Any]:
        """Return the steps in order."""
        timelines = self.timelines
        if timelines is None:
            policy = Policy.objects.select_related("live_version").get(pk=version.policy_id)
            timelines = timelines_of(policy, [version], self.context.get("actor"))
        return list(ReleaseStepShape(timelines[version.pk], many=True).data)


class ScheduledPublishShape(ModelShape):
    """A scheduled publish of a version, waiting or ended."""

    version = serializers.SlugRelatedField(slug_field="number", read_only=True)
    by = serializers.CharField(source="by_name", read_only=True)

    class Meta:
        model = ScheduledPublish
        fields = (
            "policy",
            "version",
            "at",
            "instead_of",
            "by",
            "why",
            "state",
            "problem",
            "created_at",
            "ended_at",
            "revision",
        )


PolicyChange, NewPolicy = change_body(Policy), new_body(Policy)


class NewPolicyVersion(Input):
    """Body of a new version, which has no effect until it is published."""

    document = Document(help_text="As described by /policies/schema; omitted fields take their defaults.")
    message = Text(required=False, allow_blank=True, default="", help_text="What changes, and why.")
    based_on = WholeNumber(
        required=False,
        allow_null=True,
        min_value=1,
        max_value=_LARGEST,
        help_text="Number of the version that was live when editing began; default: the live one.",
    )


class PolicyDocument(Input):
    """A document to check."""

    document = Document()


class CheckedDocument(serializers.Serializer):
    """Problems of a document, and the document with defaults included."""

    valid = serializers.BooleanField()
    errors = serializers.ListField(child=serializers.DictField(child=serializers.CharField()))
    document = serializers.DictField(allow_null=True)


class Publication(ChangeBody):
    """The version that the caller believes to be live; null: no version is live."""

    instead_of = WholeNumber(allow_null=True, min_value=1, max_value=_LARGEST)


class Schedule(Publication):
    """Time at which the version is to go live."""

    at = serializers.DateTimeField(help_text="With UTC offset; in the future, within 30 days.")


class Approval(ChangeBody):
    """Approval of a version."""


class RollBack(Publication):
    """The version to copy and make live."""

    number = WholeNumber(min_value=1, max_value=_LARGEST)


def _stale_policy(error: StalePolicyError, _view: Any) -> ProblemError:
    live = None if error.live is None else PolicyVersionShape(error.live).data
    return ProblemError(412, f"{error}.", members={"current": live})


answer_with(StalePolicyError, _stale_policy)
