"""One vLLM or SGLang server process (or one data-parallel rank of it)."""

from __future__ import annotations

import uuid_utils
from django.core.validators import MaxValueValidator, MinValueValidator, RegexValidator
from django.db import models
from typing_extensions import override

from controlplane.fleet.engine_url import rank_of
from controlplane.fleet.models.pool import Pool
from controlplane.platform.resource.declared_field import FieldAccess, declared
from controlplane.platform.revisions import RevisedModel

KV_NODE = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
ENGINE_KIND = r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,31}$"


class DesiredState(models.TextChoices):
    """Desired state of an engine, set by operators. The actuator sets ASLEEP, and READY when it wakes the engine."""

    READY = "ready", "Serving"
    DRAINING = "draining", "Draining"
    MAINTENANCE = "maintenance", "Maintenance"
    ASLEEP = "asleep", "Asleep"


BY_HAND = (DesiredState.READY, DesiredState.DRAINING, DesiredState.MAINTENANCE)
"""States that people set."""


class EngineRole(models.TextChoices):
    """The part of each request that an engine processes (Mooncake §3)."""

    MIXED = "mixed", "Prefill and decode"
    PREFILL = "prefill", "Prefill only"
    DECODE = "decode", "Decode only"


def new_engine_id() -> str:
    """Return a new id. Ids sort by time of registration."""
    return f"eng-{uuid_utils.uuid7().hex}"


class Engine(RevisedModel):
    """One engine. `engine_id` is its id everywhere outside this database and never changes."""

    public_id_field = "engine_id"
    in_snapshot = True

    engine_id = models.CharField(max_length=64, unique=True, default=new_engine_id)
    pool = declared(
        models.ForeignKey(Pool, on_delete=models.PROTECT, related_name="engines"),
        "Pool",
        "Slug of its pool.",
        access=FieldAccess.FIXED,
    )
    name = declared(models.SlugField(max_length=64), "Name", "Letters, digits, - and _; unique in its pool.")
    url = declared(
        models.CharField(max_length=300, unique=True),
        "URL",
        "http://host:port of the engine's API, reachable from this host. A suffix #1 selects that data-parallel rank.",
        aliases=("address",),
    )
    connect_url = models.CharField(max_length=300)
    """The address that gateways connect to. http addresses are resolved once, so that a name cannot later point
    elsewhere.
    """
    kv_events_endpoint = declared(
        models.CharField(max_length=200, blank=True),
        "KV event endpoint",
        "tcp://host:port. Empty: detected from the engine.",
        aliases=("events", "kv_events"),
    )
    kv_replay_endpoint = declared(
        models.CharField(max_length=200, blank=True),
        "KV replay endpoint",
        "tcp://host:port, to replay missed events. Empty: detected from the engine.",
        aliases=("replay", "kv_replay"),
    )
    speed = declared(
        models.FloatField(default=1.0, validators=[MinValueValidator(0.001), MaxValueValidator(1000)]),
        "Relative speed",
        "Prefill speed relative to the pool's cost profile: 1 is equal, 2 is twice as fast.",
        unit="×",
    )
    kind = declared(
        models.CharField(
            max_length=32, blank=True, validators=[RegexValidator(ENGINE_KIND, "Use A-Z, a-z, 0-9, . _ -")]
        ),
        "Kind",
        "Accelerator or build, such as H100; engines of one kind share a learned cost. Empty: the pool's common kind.",
    )
    role = declared(
        models.CharField(max_length=8, choices=EngineRole.choices, default=EngineRole.MIXED),
        "Role",
        "Prefill engines only compute prompts; decode engines only generate answers.",
    )
    kv_node = declared(
        models.CharField(
            max_length=64, blank=True, default="", validators=[RegexValidator(KV_NODE, "Use A-Z, a-z, 0-9, . _ -")]
        ),
        "KV node",
        "Name of the node manager that stores the engine's KV blocks. Empty: none.",
    )
    cost_per_hour = declared(
        models.FloatField(null=True, blank=True, validators=[MinValueValidator(0), MaxValueValidator(10_000)]),
        "Cost per hour",
        "Price of its accelerators and host. Empty: unknown.",
        unit="$/h",
    )
    desired_state = models.CharField(max_length=16, choices=DesiredState.choices, default=DesiredState.READY)
    supervised = models.BooleanField(default=False)
    """Whether Headway's supervisor starts and stops its process."""
    source = models.CharField(max_length=200, blank=True, default="")
    """The discovery source that lists the engine; empty: a person or an automation registered it."""
    registered_at = models.DateTimeField(auto_now_add=True)

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
