"""Audit events on the wire."""

from __future__ import annotations

from rest_framework import serializers

from controlplane.platform.models.audit_event import AuditEvent


class AuditEventShape(serializers.ModelSerializer):
    """One change: who, what, before and after, and why."""

    actor = serializers.CharField(source="actor_name")
    pool = serializers.CharField(source="pool_slug")
    before = serializers.DictField(allow_null=True)
    after = serializers.DictField(allow_null=True)

    class Meta:
        model = AuditEvent
        fields = (
            "id",
            "at",
            "actor",
            "via",
            "verb",
            "object_kind",
            "object_id",
            "pool",
            "before",
            "after",
            "why",
            "request_id",
        )
        read_only_fields = fields
