"""One what-if: a policy applied to recorded traffic, and the result."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from typing_extensions import override

from controlplane.fleet.models.pool import Pool
from controlplane.policies.models.policy_version import PolicyVersion
from controlplane.request_log.models.recording import Recording


class WhatIf(models.Model):
    """A recording under two policy versions. The job run whose shard is this row computes it."""

    pool = models.ForeignKey(Pool, on_delete=models.CASCADE, related_name="whatifs")
    recording = models.ForeignKey(Recording, on_delete=models.SET_NULL, null=True, blank=True, related_name="whatifs")
    """Empty: the recording was deleted after the result was stored."""
    recording_name = models.CharField(max_length=120)
    draft = models.ForeignKey(PolicyVersion, on_delete=models.PROTECT, related_name="+")
    base = models.ForeignKey(PolicyVersion, on_delete=models.PROTECT, related_name="+")
    """The version with which the draft is compared, usually the live one."""
    conditions = models.JSONField()
    """controlplane.trials.whatif.conditions.Conditions as JSON, validated before it was stored."""
    result = models.JSONField(null=True, blank=True)
    """controlplane.trials.whatif.result.WhatIfResult as JSON; empty: unfinished or failed (see the job run)."""
    author = models.ForeignKey(
        settings.AUTH_USER_MODEL, on_delete=models.PROTECT, null=True, blank=True, related_name="+"
    )
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ("-created_at", "-id")

    @override
    def __str__(self) -> str:
        return f"what-if {self.pk}: {self.draft} against {self.base}"

    @property
    def base_name(self) -> str:
        """Return one word for the side with which the draft is compared."""
        return "Baseline" if self.conditions.get("base_placement") else f"v{self.base.number}"

    @property
    def against(self) -> str:
        """Return the side with which the draft is compared: v3, or the baseline that replaces v3's placement."""
        baseline = self.conditions.get("base_placement")
        return f"v{self.base.number} with {baseline}" if baseline else f"v{self.base.number}"
