"""Settings of the decode cost in a policy document."""

from __future__ import annotations

from typing import Annotated

import msgspec

from routing.policy.setting import about, number


class DecodeCostDocument(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """seconds of a step = base + per_sequence·batch + per_context_token·context (tokens the batch attends to)."""

    base_s: Annotated[
        float, about("Base time", "Fixed time of one decode step."), number("s", ge=0, le=10, usual=(0.005, 0.05))
    ] = 0.015
    per_sequence_s: Annotated[
        float, about("Per sequence", "Time per request in the decode step."), number("s", ge=0, le=1, usual=(0, 1e-3))
    ] = 0.1e-3
    per_context_token_s: Annotated[
        float,
        about("Per context token", "Time per token in the context of the step's requests."),
        number("s per tok", ge=0, le=1e-3, usual=(0, 1e-6)),
    ] = 30e-9
