"""One vLLM or SGLang server process (or one data-parallel rank of it)."""

from __future__ import annotations

import uuid_utils
from django.core.validators import MaxValueValidator, MinValueValidator, RegexValidator
from django.db import models
from typing_extensions import override

from controlplane.fleet.engine_url import rank_of
from controlplane.fleet.models.pool import Pool

KV_NODE = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
ENGINE_KIND = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,31}$"


class DesiredState(models.TextChoices):
    """Desired state of an engine, set by operators."""

    READY = "ready", "Serving"
    DRAINING = "draining", "Draining"
    MAINTENANCE = "maintenance", "Maintenance"


class EngineRole(models.TextChoices):
    """The part of each request that an engine processes (Mooncake §3)."""

    MIXED = "mixed", "Prefill and decode"
    PREFILL = "prefill", "Prefill only"
    DECODE = "decode", "Decode only"


def new_engine_id() -> str:
    """Return a new id. Ids sort by time of registration."""
    return f"eng-{uuid_utils.uuid7().hex}"


class Engine(models.Model):
    """One engine. `engine_id` is its id everywhere outside this database and never changes."""

    public_id_field = "engine_id"
    in_snapshot = True

    engine_id = models.CharField(max_length=64, unique=True, default=new_engine_id)
    pool = models.ForeignKey(Pool, on_delete=models.PROTECT, related_name="engines")
    name = models.SlugField(max_length=64)
    url = models.CharField(max_length=300, unique=True)
    """URL as entered by the operator, such as http://engine-3.internal:8000. A suffix #1 selects that data-parallel
    rank.
    """
    connect_url = models.CharField(max_length=300)
    """The address that gateways connect to. http addresses are resolved once, so that a name cannot later point
    elsewhere.
    """
    kv_events_endpoint = models.CharField(max_length=200, blank=True)
    kv_replay_endpoint = models.CharField(max_length=200, blank=True)
    speed = models.FloatField(default=1.0, validators=[MinValueValidator(0.001), MaxValueValidator(1000)])
    """Prefill speed relative to the pool's cost profile."""
    kind = models.CharField(
        max_length=32, blank=True, validators=[RegexValidator(ENGINE_KIND, "Use A-Z, a-z, 0-9, . _ -")]
    )
    """Engines of one kind (accelerator, build) share a learned cost; empty: the pool's default kind."""
    role = models.CharField(max_length=8, choices=EngineRole.choices, default=EngineRole.MIXED)
    """Its role in a pool with prefill and decode engines. A mixed engine does both."""
    kv_node = models.CharField(
        max_length=64, blank=True, default="", validators=[RegexValidator(KV_NODE, "Use A-Z, a-z, 0-9, . _ -")]
    )
    """Name of the node manager that stores its KV blocks; empty: none."""
    desired_state = models.CharField(max_length=16, choices=DesiredState.choices, default=DesiredState.READY)
    supervised = models.BooleanField(default=False)
    """Whether Headway's supervisor starts and stops its process."""
    source = models.CharField(max_length=200, blank=True, default="")
    """The discovery source that lists the engine; empty: a person or an automation registered it."""
    registered_at = models.DateTimeField(auto_now_add=True)
    revision = models.PositiveIntegerField(default=1)
    """Incremented by each change; used as ETag of the API."""

    class Meta:
        ordering = ("pool__slug", "name")
        constraints = (
            models.UniqueConstraint(fields=("pool", "name"), name="engine_name_once_per_pool"),
            models.CheckConstraint(
                condition=models.Q(desired_state__in=DesiredState.values), name="engine_desired_state_known"
            ),
            models.CheckConstraint(condition=models.Q(role__in=EngineRole.values), name="engine_role_known"),
            models.CheckConstraint(condition=models.Q(speed__gt=0, speed__lte=1000), name="engine_speed_in_range"),
            models.CheckConstraint(condition=models.Q(engine_id__regex=r"^[A-Za-z0-9._-]+$"), name="engine_id_plain"),
        )

    @override
    def __str__(self) -> str:
        return f"{self.pool}/{self.name}"

    @property
    def rank(self) -> int | None:
        """Return the data-parallel rank in the process at its URL; None: all ranks."""
        return rank_of(self.url)
