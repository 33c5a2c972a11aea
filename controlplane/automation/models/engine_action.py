"""One action for an actuator: start an engine, stop one, or change its role."""

from __future__ import annotations

from django.db import models
from typing_extensions import override

from controlplane.fleet.models.engine import Engine, EngineRole
from controlplane.fleet.models.pool import Pool


class ActionKind(models.TextChoices):
    """Kind of the action."""

    START = "start", "Start an engine"
    STOP = "stop", "Drain and stop the engine"
    CHANGE_ROLE = "change_role", "Change the engine's role"


class ActionState(models.TextChoices):
    """State of an action; each step is one conditional update."""

    WANTED = "wanted", "Not started"
    DRAINING = "draining", "Draining"
    SENT = "sent", "In progress"
    DONE = "done", "Done"
    FAILED = "failed", "Failed"
    CANCELLED = "cancelled", "Canceled"


OPEN_STATES = (ActionState.WANTED, ActionState.DRAINING, ActionState.SENT)


class EngineAction(models.Model):
    """One action. Every call to the actuator includes its `key`, so that a repeated call has one effect."""

    public_id_field = "key"

    key = models.CharField(max_length=64, unique=True)
    """Idempotency key; also the id of the engine that a START creates."""
    pool = models.ForeignKey(Pool, on_delete=models.CASCADE, related_name="engine_actions")
    kind = models.CharField(max_length=16, choices=ActionKind.choices)
    role = models.CharField(max_length=8, choices=EngineRole.choices, default=EngineRole.MIXED)
    """The role after the action."""
    engine = models.ForeignKey(Engine, on_delete=models.SET_NULL, null=True, blank=True, related_name="actions")
    engine_name = models.CharField(max_length=64, blank=True)
    """The engine's name, kept after the engine is deleted."""
    state = models.CharField(max_length=16, choices=ActionState.choices, default=ActionState.WANTED)
    by = models.CharField(max_length=150)
    """The automation or person that requested the action."""
    why = models.CharField(max_length=300, blank=True)
    attempts = models.PositiveIntegerField(default=0)
    next_try_at = models.DateTimeField()
    deadline_at = models.DateTimeField()
    """The action is given up after this time."""
    actuator_state = models.JSONField(default=dict, blank=True)
    """State for the actuator's next call, such as the scale that it set."""
    says = models.CharField(max_length=300, blank=True)
    """Reason for waiting or failing, as a sentence."""
    requested_at = models.DateTimeField()
    finished_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ("requested_at", "pk")
        indexes = (models.Index(fields=("pool", "state"), name="engine_action_by_pool_state"),)
        constraints = (
            models.CheckConstraint(condition=models.Q(kind__in=ActionKind.values), name="engine_action_kind_known"),
            models.CheckConstraint(condition=models.Q(state__in=ActionState.values), name="engine_action_state_known"),
            # Two automations may order the same engine at the same moment (plan_actions).
            models.UniqueConstraint(
                fields=("engine",),
                condition=models.Q(state__in=("wanted", "draining", "sent"), engine__isnull=False),
                name="engine_action_open_once_per_engine",
            ),
        )

    @override
    def __str__(self) -> str:
        return f"{self.kind} {self.engine_name or self.key} in {self.pool}: {self.state}"
