"""One version of a policy; versions are only ever added."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.db import models
from typing_extensions import override

from controlplane.platform.models.append_only import AppendOnlyError
from controlplane.policies.models.policy import Policy


class PolicyVersion(models.Model):
    """A whole policy as written once; a draft until it is published."""

    public_id_field = "number"

    policy = models.ForeignKey(Policy, on_delete=models.PROTECT, related_name="versions")
    number = models.PositiveIntegerField()
    """Counts up from 1 within the policy; the policy_version of decisions."""
    routing_document = models.JSONField()
    """routing.policy.policy_document.RoutingPolicy as JSON, validated before it was stored."""
    automation_document = models.JSONField(default=dict)
    """AutomationPolicy (planning.documents) as JSON, validated likewise; omitted settings take their defaults."""
    author = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, blank=True, related_name="+"
    )
    """Empty for versions made by the program itself."""
    message = models.CharField(max_length=200, blank=True)
    based_on = models.PositiveIntegerField(null=True, blank=True)
    """Number of the live version when its author began; empty: none was live."""
    copies = models.PositiveIntegerField(null=True, blank=True)
    """Number of the version that a rollback copied; empty: it was written by its author."""
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
        """Add the version; raises AppendOnlyError for one that is stored already."""
        if not self._state.adding:
            raise AppendOnlyError(f"{self} is stored; write a new version instead")
        super().save(*args, **kwargs)

    @override
    def delete(self, *args: Any, **kwargs: Any) -> tuple[int, dict[str, int]]:
        """Raise AppendOnlyError: decisions name versions, so none may vanish."""
        raise AppendOnlyError(f"{self} stays, because decisions refer to it")

    @property
    def document(self) -> dict[str, Any]:
        """The whole policy as people write it: routing settings, and automations under `automation`."""
        return {**self.routing_document, "automation": self.automation_document}
