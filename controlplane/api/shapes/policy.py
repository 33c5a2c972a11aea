"""Policies and their versions on the wire."""

from __future__ import annotations

from rest_framework import serializers

from controlplane.api.strict_fields import Change, Document, Input, Text, WholeNumber
from controlplane.models import Policy, PolicyVersion

_LARGEST = 2**31 - 1


class PolicyShape(serializers.ModelSerializer):
    """A line of versions, one of which may be live."""

    live_version = serializers.SlugRelatedField(slug_field="number", read_only=True, allow_null=True)

    class Meta:
        model = Policy
        fields = ("slug", "name", "live_version", "revision")
        read_only_fields = fields


class PolicyVersionShape(serializers.ModelSerializer):
    """A whole policy as it was written once."""

    policy = serializers.SlugRelatedField(slug_field="slug", read_only=True)
    author = serializers.SlugRelatedField(slug_field="username", read_only=True, allow_null=True)
    document = serializers.JSONField(read_only=True)

    class Meta:
        model = PolicyVersion
        fields = ("policy", "number", "document", "author", "message", "based_on", "created_at", "published_at")
        read_only_fields = fields


class PolicyChange(Change):
    """What of a policy can change; its settings change by new versions."""

    name = Text(max_length=120)


class NewPolicy(PolicyChange):
    """A policy to be."""

    slug = Text(max_length=64, help_text="Its id; never changes.")


class NewPolicyVersion(Input):
    """A version to be; it changes nothing until it is published."""

    document = Document(help_text="As /policies/schema describes it; what is left out takes its default.")
    message = Text(required=False, allow_blank=True, default="", help_text="What changes and why.")
    based_on = WholeNumber(
        required=False,
        allow_null=True,
        min_value=1,
        max_value=_LARGEST,
        help_text="Number of the version that was live when the author began; left out: the one that is live.",
    )


class PolicyDocument(Input):
    """A document to look at."""

    document = Document()


class CheckedDocument(serializers.Serializer):
    """What is wrong with a document, and how it reads with its defaults written out."""

    valid = serializers.BooleanField()
    errors = serializers.ListField(child=serializers.DictField(child=serializers.CharField()))
    document = serializers.DictField(allow_null=True)


class Publication(Change):
    """Which version the caller believes to be live; null: none is."""

    instead_of = WholeNumber(allow_null=True, min_value=1, max_value=_LARGEST)


class RollBack(Publication):
    """Which version is to be live again, as a copy."""

    number = WholeNumber(min_value=1, max_value=_LARGEST)
