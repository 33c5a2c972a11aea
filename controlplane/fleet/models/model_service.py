"""Names that clients send as `model`, the pools that serve them in order, and an external provider behind these."""

from __future__ import annotations

from django.core.validators import MaxValueValidator, MinValueValidator, RegexValidator
from django.db import models
from typing_extensions import override

from controlplane.platform.resource.declared_field import FieldAccess, TextList, declared
from controlplane.platform.revisions import RevisedModel
from gateway.base.engine_api_keys import PROVIDER_KEY

MAX_NAMES, MAX_POOLS = 50, 20
_PRICE = (MinValueValidator(0), MaxValueValidator(100_000))


class ModelService(RevisedModel):
    """Names that clients send as model. `slug` is its id, one of the names, and never changes."""

    in_snapshot = True

    slug = declared(
        models.SlugField(max_length=64, unique=True),
        "Id",
        "Clients can send it as model. Letters, digits, - and _; it never changes.",
        access=FieldAccess.FIXED,
    )
    aliases = declared(
        models.JSONField(default=list, blank=True),
        "Aliases",
        "Further names that clients send as model, separated by commas. A served model’s name is taken over.",
        items=TextList(most=MAX_NAMES),
    )
    pools = declared(
        models.JSONField(default=list),
        "Pools",
        "Ids of pools in the order in which they are tried. Neighbors with one served model share requests by weight.",
        items=TextList(most=MAX_POOLS, least=1, length=64),
        example="chat-large, chat-small",
    )
    fallback = declared(
        models.BooleanField(default=False),
        "Use the provider",
        "Send requests that no pool can serve on time to the provider. Their prompts leave your installation.",
        kept=True,
    )
    provider_url = declared(
        models.CharField(max_length=300, blank=True, default=""),
        "Provider URL",
        "Base URL of an OpenAI-compatible API, with its version.",
        kept=True,
        example="https://api.example.com/v1",
    )
    provider_model = declared(
        models.CharField(max_length=200, blank=True, default=""),
        "Provider model",
        "As the provider names it.",
        kept=True,
    )
    provider_key_env = declared(
        models.CharField(
            max_length=64,
            blank=True,
            default="",
            validators=[RegexValidator(PROVIDER_KEY, "Use HEADWAY_PROVIDER_KEY_ and A-Z, 0-9, _.")],
        ),
        "Provider key variable",
        "Environment variable of the gateways (or its _FILE variant) with the provider’s key. Empty: no key is sent.",
        kept=True,
        example="HEADWAY_PROVIDER_KEY_MAIN",
    )
    provider_region = declared(
        models.CharField(max_length=64, blank=True, default=""),
        "Provider region",
        "Id of the region in which the provider processes prompts, for sovereignty rules. Empty: unknown.",
        kept=True,
    )
    input_cost = declared(
        models.FloatField(default=0.0, validators=_PRICE), "Prompt price", unit="$/M tokens", kept=True
    )
    output_cost = declared(
        models.FloatField(default=0.0, validators=_PRICE), "Output price", unit="$/M tokens", kept=True
    )

    class Meta:
        ordering = ("slug",)


class ProviderUsage(models.Model):
    """What a service's provider answered in one UTC day, and its cost in dollars."""

    service = models.CharField(max_length=64)
    day = models.DateField()
    requests = models.PositiveIntegerField(default=0)
    cost = models.FloatField(default=0.0)

    class Meta:
        constraints = (models.UniqueConstraint(fields=("service", "day"), name="provider_usage_once_per_day"),)

    @override
    def __str__(self) -> str:
        return f"{self.service} on {self.day}"
