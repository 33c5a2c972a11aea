"""Engines of one served model in one region, under one policy."""

from __future__ import annotations

from ipaddress import ip_network

from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator, MinValueValidator, RegexValidator
from django.db import models

from controlplane.fleet.models.region import Region
from controlplane.platform.resource.declared_field import FieldAccess, declared
from controlplane.platform.revisions import RevisedModel
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


class AdviceMode(models.TextChoices):
    """What the adviser may do in a pool without a person."""

    OFF = "off", "Off"
    PROPOSE = "propose", "Propose"
    CANARY = "canary", "Try in a canary"
    PROMOTE = "promote", "Try, and publish"


class ActuatorKind(models.TextChoices):
    """System that starts and stops a pool's engines."""

    MANUAL = "manual", "An operator, by hand"
    PROCESS = "process", "Headway, as processes on this host"
    WEBHOOK = "webhook", "Your service, by signed webhooks"
    KUBERNETES = "kubernetes", "Kubernetes, by scaling StatefulSets"
    SLEEP = "sleep", "vLLM’s sleep mode: engines sleep and wake"


def check_networks(text: str) -> None:
    """Raise ValidationError unless the text is a list of networks."""
    for part in text.split(","):
        try:
            ip_network(part.strip())
        except ValueError as error:
            raise ValidationError(f"Write networks such as 10.3.0.0/16, separated by commas: {error}.") from error


class Pool(RevisedModel):
    """One pool. `slug` is its id in snapshots, metrics, and decisions, and never changes."""

    in_snapshot = True

    slug = declared(
        models.SlugField(max_length=64, unique=True),
        "ID",
        "Letters, digits, - and _; it never changes.",
        access=FieldAccess.FIXED,
    )
    name = declared(models.CharField(max_length=120), "Name")
    region = declared(
        models.ForeignKey(Region, on_delete=models.PROTECT, related_name="pools"), "Region", "Slug of its region."
    )
    served_model = declared(models.CharField(max_length=200), "Served model", "As engines name it.")
    key_source = declared(
        models.CharField(max_length=16, choices=KeySource.choices, default=KeySource.EXACT), "Block keys"
    )
    block_tokens = declared(
        models.PositiveIntegerField(default=512, validators=[MinValueValidator(1), MaxValueValidator(65_536)]),
        "Block size",
        "In tokens, as its engines report it; a change clears the prefix index.",
    )
    block_bytes = declared(
        models.PositiveIntegerField(default=2048, validators=[MinValueValidator(1), MaxValueValidator(1 << 20)]),
        "Byte block size",
        "In bytes, for approximate block keys; a change clears the prefix index.",
    )
    isolated = declared(
        models.BooleanField(default=False),
        "Isolate tenants’ caches",
        "Each tenant gets cache hits only on its own prompts. The first tenant’s cache stays warm; the others start "
        "cold.",
        kept=True,
    )
    max_prompt_tokens = declared(
        models.PositiveIntegerField(default=131_072, validators=[MinValueValidator(1), MaxValueValidator(100_000_000)]),
        "Max prompt length",
        "In tokens; longer prompts are rejected.",
    )
    weight = declared(
        models.PositiveSmallIntegerField(default=100, validators=[MaxValueValidator(1000)]),
        "Weight",
        "Share of the requests for its model, relative to other pools that serve it. 0: only if no other pool has an "
        "engine.",
    )
    policy = declared(
        models.ForeignKey(Policy, on_delete=models.PROTECT, related_name="pools"), "Policy", "Slug of its policy."
    )
    mode = declared(
        models.CharField(max_length=16, choices=PoolMode.choices, default=PoolMode.ROUTE),
        "Mode",
        "observe: no routing. Omitted: a routing pool is unchanged; a PUT of an observing pool must name it, because "
        "it would start to route.",
        kept=True,
    )
    actuator = declared(
        models.CharField(max_length=16, choices=ActuatorKind.choices, default=ActuatorKind.MANUAL),
        "Actuator",
        "Starts and stops engines.",
    )
    actuator_settings = declared(
        models.JSONField(default=dict, blank=True),
        "Actuator settings",
        "Depends on the actuator; contains no secret.",
    )
    """controlplane.fleet.actuator_settings as JSON, validated before it was stored."""
    engine_networks = declared(
        models.CharField(max_length=500, blank=True, default="", validators=[check_networks]),
        "Engine networks",
        "Engine addresses must be in these networks, separated by commas. Headway sends prompts and the key only "
        "there. Empty: the installation's networks.",
        kept=True,
        example="10.3.0.0/16",
    )
    engine_api_key_env = declared(
        models.CharField(
            max_length=64,
            blank=True,
            default="",
            validators=[RegexValidator(OWN_KEY, "Use HEADWAY_ENGINE_KEY_ and A-Z, 0-9, _.")],
        ),
        "Engine key variable",
        "Environment variable (or its _FILE variant) with the engines' key. Empty: HEADWAY_ENGINE_API_KEY, only within "
        "the installation's networks.",
        kept=True,
        example="HEADWAY_ENGINE_KEY_CHAT",
    )
    production = declared(
        models.BooleanField(default=True),
        "Production",
        "Publishing, promoting and rolling back here require typing a name.",
    )
    advice = declared(
        models.CharField(max_length=16, choices=AdviceMode.choices, default=AdviceMode.PROPOSE),
        "Adviser",
        "What the adviser may do without a person: nothing, propose policies, try them in canaries, publish them. Of "
        "pools with one policy, the lowest applies.",
        kept=True,
    )
    advice_on_time_gain = declared(
        models.FloatField(default=2.0, validators=[MinValueValidator(0.1), MaxValueValidator(50.0)]),
        "Smallest on-time gain",
        "Smallest gain of the on-time share that is worth a proposal.",
        unit="pt",
        kept=True,
    )
    advice_ttft_gain = declared(
        models.FloatField(default=10.0, validators=[MinValueValidator(1.0), MaxValueValidator(90.0)]),
        "Smallest TTFT gain",
        "Smallest reduction of the mean TTFT that is worth a proposal.",
        unit="%",
        kept=True,
    )
    advice_hours = declared(
        models.CharField(
            max_length=5,
            blank=True,
            default="",
            validators=[RegexValidator(r"^([01]?\d|2[0-3])-([01]?\d|2[0-3])$", "Use two hours such as 22-6.")],
        ),
        "Autopilot hours",
        "UTC hours in which the autopilot starts trials and publishes; empty: all.",
        kept=True,
        example="22-6",
    )

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
            models.CheckConstraint(condition=models.Q(advice__in=AdviceMode.values), name="pool_advice_known"),
        )
