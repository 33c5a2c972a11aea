"""One version of a policy. Versions are added, and never changed; only drafts are deleted."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.db import models
from typing_extensions import override

from controlplane.platform.models.append_only import AppendOnlyError
from controlplane.policies.models.policy import Policy


class PolicyVersion(models.Model):
    """A complete policy, written once. It is a draft until it is published."""

    public_id_field = "number"

    policy = models.ForeignKey(Policy, on_delete=models.PROTECT, related_name="versions")
    number = models.PositiveIntegerField()
    """Sequence number within the policy, from 1; the policy_version of decisions."""
    routing_document = models.JSONField()
    """routing.policy.policy_document.RoutingPolicy as JSON, validated before it was stored."""
    automation_document = models.JSONField(default=dict)
    """AutomationPolicy (planning.documents) as JSON, validated before it was stored. Omitted settings have defaults."""
    author = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, blank=True, related_name="+"
    )
    """Empty for versions created by the program."""
    message = models.CharField(max_length=200, blank=True)
    based_on = models.PositiveIntegerField(null=True, blank=True)
    """Number of the live version when the author began; empty: no version was live."""
    copies = models.PositiveIntegerField(null=True, blank=True)
    """Number of the version that a rollback copied; empty: not a rollback."""
    created_at = models.DateTimeField(auto_now_add=True)
    published_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ("policy", "number")
        constraints = (
            models.UniqueConstraint(fields=("policy", "number"), name="policy_version_number_once"),
            models.CheckConstraint(condition=models.Q(number__gte=1), name="policy_version_number_from_1"),
        )

    @override
    def __str__(self) -> str:
        return f"{self.policy} v{self.number}"

    @override
    def save(self, *args: Any, **kwargs: Any) -> None:
        """Add the version. Raises AppendOnlyError if it is already stored."""
        if not self._state.adding:
            raise AppendOnlyError(f"{self} is stored; write a new version instead")
        super().save(*args, **kwargs)

    @override
    def delete(self, *args: Any, **kwargs: Any) -> tuple[int, dict[str, int]]:
        """Raise AppendOnlyError, because decisions refer to versions; `publish.delete_draft` deletes a draft."""
        raise AppendOnlyError(f"{self} stays, because decisions refer to it")

    @property
    def document(self) -> dict[str, Any]:
        """Return the complete policy as people write it: routing settings, and automations under `automation`."""
        return {**self.routing_document, "automation": self.automation_document}
