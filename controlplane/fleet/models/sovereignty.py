"""The sovereignty rules in force."""

from __future__ import annotations

from typing import Any

import msgspec
from django.db import models
from typing_extensions import override

from controlplane.platform.revisions import RevisedModel
from routing.regions.sovereignty import SovereigntyDocument


def as_json(document: SovereigntyDocument) -> dict[str, Any]:
    """Return the document in its stored form."""
    return msgspec.json.decode(msgspec.json.encode(document))


def allow_all() -> dict[str, Any]:
    """Return the document without rules."""
    return as_json(SovereigntyDocument())


class Sovereignty(RevisedModel):
    """The only row, which holds the document. Without it, all hops are allowed."""

    ONLY = 1
    public_id_field = "name"
    name = "rules"
    in_snapshot = True

    id = models.PositiveSmallIntegerField(primary_key=True, default=ONLY)
    document = models.JSONField(default=allow_all)

    class Meta:
        constraints = (models.CheckConstraint(condition=models.Q(id=1), name="sovereignty_one_row"),)
        verbose_name = "sovereignty"
        verbose_name_plural = "sovereignty"

    @override
    def __str__(self) -> str:
        return "sovereignty rules"
