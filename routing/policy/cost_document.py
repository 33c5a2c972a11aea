"""The settings of the decode cost, as a policy document holds them."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta


class DecodeCostDocument(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """seconds of a step = base + per_sequence·batch + per_context_token·context (tokens the batch attends to)."""

    base_s: Annotated[
        float,
        Meta(
            ge=0,
            le=10,
            title="Base time",
            description="Fixed time of one decode step.",
            extra_json_schema={"x-unit": "s", "x-usual": [0.005, 0.05]},
        ),
    ] = 0.015
    per_sequence_s: Annotated[
        float,
        Meta(
            ge=0,
            le=1,
            title="Per sequence",
            description="Time per request in the decode step.",
            extra_json_schema={"x-unit": "s", "x-usual": [0, 1e-3]},
        ),
    ] = 0.1e-3
    per_context_token_s: Annotated[
        float,
        Meta(
            ge=0,
            le=1e-3,
            title="Per context token",
            description="Time per token in the context of the step's requests.",
            extra_json_schema={"x-unit": "s per tok", "x-usual": [0, 1e-6]},
        ),
    ] = 30e-9
