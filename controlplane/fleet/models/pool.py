"""Engines of one served model in one region, under one policy."""

from __future__ import annotations

from ipaddress import ip_network

from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator, MinValueValidator, RegexValidator
from django.db import models
from typing_extensions import override

from controlplane.fleet.models.region import Region
from controlplane.policies.models.policy import Policy
from gateway.base.engine_api_keys import OWN_KEY


class KeySource(models.TextChoices):
    """Source of a pool's block keys."""

    EXACT = "exact", "Token blocks, indexed from engines' KV events"
    APPROXIMATE = "approximate", "Byte blocks, indexed from our own dispatches"


class PoolMode(models.TextChoices):
    """Whether Headway or another router decides a pool's requests."""

    ROUTE = "route", "Headway routes"
    OBSERVE = "observe", "Observe only: another router routes and reports"


class ActuatorKind(models.TextChoices):
    """System that starts and stops a pool's engines."""

    MANUAL = "manual", "An operator, by hand"
    PROCESS = "process", "Headway, as processes on this host"
    WEBHOOK = "webhook", "Your service, by signed webhooks"
    KUBERNETES = "kubernetes", "Kubernetes, by scaling StatefulSets"


def check_networks(text: str) -> None:
    """Raise ValidationError unless the text is a list of networks."""
    for part in text.split(","):
        try:
            ip_network(part.strip())
        except ValueError as error:
            raise ValidationError(f"Write networks such as 10.3.0.0/16, separated by commas: {error}.") from error


class Pool(models.Model):
    """One pool. `slug` is its id in snapshots, metrics, and decisions, and never changes."""

    public_id_field = "slug"
    in_snapshot = True

    slug = models.SlugField(max_length=64, unique=True)
    name = models.CharField(max_length=120)
    region = models.ForeignKey(Region, on_delete=models.PROTECT, related_name="pools")
    served_model = models.CharField(max_length=200)
    key_source = models.CharField(max_length=16, choices=KeySource.choices, default=KeySource.EXACT)
    block_tokens = models.PositiveIntegerField(
        default=512, validators=[MinValueValidator(1), MaxValueValidator(65_536)]
    )
    block_bytes = models.PositiveIntegerField(
        default=2048, validators=[MinValueValidator(1), MaxValueValidator(1 << 20)]
    )
    isolated = models.BooleanField(default=False)
    """Whether caches are separated per tenant by a derived salt."""
    max_prompt_tokens = models.PositiveIntegerField(
        default=131_072, validators=[MinValueValidator(1), MaxValueValidator(100_000_000)]
    )
    weight = models.PositiveSmallIntegerField(default=100, validators=[MaxValueValidator(1000)])
    """Its share of the model's requests, relative to other pools that serve the model; 0: only if no other pool can."""
    policy = models.ForeignKey(Policy, on_delete=models.PROTECT, related_name="pools")
    mode = models.CharField(max_length=16, choices=PoolMode.choices, default=PoolMode.ROUTE)
    actuator = models.CharField(max_length=16, choices=ActuatorKind.choices, default=ActuatorKind.MANUAL)
    """System that starts and stops engines for the automations."""
    actuator_settings = models.JSONField(default=dict, blank=True)
    """controlplane.fleet.actuator_settings as JSON, validated before it was stored. Contains no secret."""
    engine_networks = models.CharField(max_length=500, blank=True, default="", validators=[check_networks])
    """Networks allowed for its engines, separated by commas; empty: the networks of the installation."""
    engine_api_key_env = models.CharField(
        max_length=64,
        blank=True,
        default="",
        validators=[RegexValidator(OWN_KEY, "Use HEADWAY_ENGINE_KEY_ and A-Z, 0-9, _.")],
    )
    """Name of the environment variable with its engines' key; empty: the installation's key, only within its networks.
    """
    production = models.BooleanField(default=True)
    """Whether people must type a name before they change the live policy version of the pool."""
    revision = models.PositiveIntegerField(default=1)
    """Incremented by each change; used as ETag of the API."""

    class Meta:
        ordering = ("slug",)
        constraints = (
            models.CheckConstraint(condition=models.Q(key_source__in=KeySource.values), name="pool_key_source_known"),
            models.CheckConstraint(
                condition=models.Q(block_tokens__range=(1, 65_536)) & models.Q(block_bytes__range=(1, 1 << 20)),
                name="pool_block_size_in_range",
            ),
            models.CheckConstraint(condition=models.Q(max_prompt_tokens__gte=1), name="pool_prompt_limit_positive"),
            models.CheckConstraint(condition=models.Q(weight__lte=1000), name="pool_weight_in_range"),
            models.CheckConstraint(condition=~models.Q(served_model=""), name="pool_serves_a_model"),
            models.CheckConstraint(condition=models.Q(mode__in=PoolMode.values), name="pool_mode_known"),
            models.CheckConstraint(condition=models.Q(actuator__in=ActuatorKind.values), name="pool_actuator_known"),
        )

    @override
    def __str__(self) -> str:
        return self.slug
