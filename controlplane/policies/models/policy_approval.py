"""One person's approval of a version."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from typing_extensions import override

from controlplane.policies.models.policy_version import PolicyVersion


class PolicyApproval(models.Model):
    """The approval of one version by a person other than its author; deleted when it is withdrawn."""

    version = models.ForeignKey(PolicyVersion, on_delete=models.PROTECT, related_name="approvals")
    person = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.CASCADE, related_name="+")
    """Deleted with the person, because an approval is valid only while that person may publish."""
    at = models.DateTimeField()
    why = models.CharField(max_length=200, blank=True)

    class Meta:
        ordering = ("version", "at", "id")
        constraints = (models.UniqueConstraint(fields=("version", "person"), name="policy_approval_once_per_person"),)

    @override
    def __str__(self) -> str:
        return f"{self.person} approves {self.version}"
